"""Python's values as YAML, which the reader of scenarios takes."""
from __future__ import annotations

import json
import math
import os
import re
from typing import Any, Iterable, List, Mapping, Union

from ._errors import wrong

_DEEPEST = 60
_LARGEST = 8 << 20  # characters
_MOST = 2_000_000  # values
_LONGEST_NUMBER = 64  # digits
# Text that YAML takes for text: no number, no truth value, nothing with a meaning of its own.
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./%*+ -]*(?<! )", re.ASCII)
_OTHER = re.compile(r"[-+.]?[0-9][0-9_.]*([eE][-+]?[0-9]+)?|0[xo][0-9a-fA-F]+|[-+]?\.(inf|nan)|null|~|true|false|yes|no|on|off|y|n|\.+|-+",
                    re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


def _text(value: str, at: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise wrong(at, "holds half a character (a lone surrogate), which is not text; remove it") from None
    # No amount: "8" is text here as it is in a file, and the reader says so.
    if _PLAIN.fullmatch(value) and not _OTHER.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def scalar(value: Any, at: str) -> str:
    """A number, a truth value, None or text. Throws InputError for anything else."""
    if value is None:
        return "null"
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(str(value), at)
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return scalar(path, at)
    if isinstance(value, int) or hasattr(value, "__index__"):
        number = value.__index__()
        if number.bit_length() > 3 * _LONGEST_NUMBER:
            raise wrong(at, f"is a whole number of more than {_LONGEST_NUMBER} digits; write a smaller one")
        return str(number)
    if isinstance(value, float) or hasattr(value, "__float__") and not hasattr(value, "__len__"):
        number = float(value)
        if not math.isfinite(number):
            raise wrong(at, f"{number} is not an amount; write a finite number")
        return repr(number)
    if isinstance(value, (bytes, bytearray)):
        raise wrong(at, "is bytes where text is needed; decode it first")
    raise wrong(at, f"is a {type(value).__name__}; write a number, text, True, False, None, a list or a dict")


def _is_list(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray, Mapping)):
        return False
    return isinstance(value, (list, tuple)) or (hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0)


def _listed(value: Any) -> Iterable[Any]:
    return value.tolist() if hasattr(value, "tolist") else value


def _key(key: Any, at: str) -> str:
    if not isinstance(key, str):
        raise wrong(at, f"a key is a {type(key).__name__}, {str(key)[:40]!r}; write keys as text")
    return key if _KEY.fullmatch(key) and not _OTHER.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _below(at: str, key: Any) -> str:
    return f"{at}.{key}" if at else str(key)


def flow(value: Any, at: str, depth: int = 0) -> str:
    """A value on one line, as --set has it."""
    if depth > _DEEPEST:
        raise wrong(at[:80], f"lies more than {_DEEPEST} levels deep; write a flatter value")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k, at)}: {flow(v, _below(at, k), depth + 1)}" for k, v in value.items()) + "}"
    if _is_list(value):
        listed = _listed(value)
        if len(listed) > _MOST:
            raise wrong(at, f"holds {len(listed)} values; a scenario has at most {_MOST}")
        short = range(-(2**63), 2**63)
        return "[" + ", ".join(str(v) if type(v) is int and v in short else flow(v, f"{at}[{i}]", depth + 1)
                               for i, v in enumerate(listed)) + "]"
    return scalar(value, at)


def _block(value: Mapping, at: str, indent: int, out: List[str]) -> None:
    for key, below in value.items():
        name, where = "  " * indent + _key(key, at) + ":", _below(at, key)
        if isinstance(below, Mapping) and below and indent < 12:
            out.append(name)
            _block(below, where, indent + 1, out)
        elif _is_list(below) and indent < 12 and any(isinstance(each, Mapping) for each in below):
            out.append(name)
            for i, each in enumerate(below):
                out.append("  " * (indent + 1) + "- " + flow(each, f"{where}[{i}]", indent + 1))
        else:
            out.append(f"{name} {flow(below, where, indent + 1)}")


def document(value: Mapping) -> str:
    """A dict as the text of a file."""
    out: List[str] = []
    _block(value, "", 0, out)
    return "\n".join(out) + "\n"


def changes(given: Union[None, Mapping[str, Any], Iterable[str], str], argument: str = "set") -> List[str]:
    """Values to change, as KEY=VALUE each."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [given]
    if isinstance(given, (bytes, bytearray)):
        raise wrong(argument, "is bytes; write a dict of keys and values")
    if isinstance(given, Mapping):
        texts = []
        for key, value in given.items():
            if not isinstance(key, str) or not key:
                raise wrong(argument, f"a key is {str(key)[:40]!r}; write it as text, e.g. 'plan.stages'")
            texts.append(_checked(f"{key}={flow(value, key)}", argument))
        return texts
    texts = []
    try:
        listed = list(given)
    except TypeError:
        raise wrong(argument, f"is a {type(given).__name__}; write a dict of keys and values") from None
    for text in listed:
        if not isinstance(text, str):
            raise wrong(argument, f"holds a {type(text).__name__}; write a dict of keys and values, or a list of 'KEY=VALUE'")
        texts.append(_checked(text, argument))
    return texts


def _checked(text: str, at: str) -> str:
    if len(text) > _LARGEST:
        raise wrong(at, f"is larger than {_LARGEST >> 20} MiB; write a smaller one")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise wrong(at, "holds half a character (a lone surrogate), which is not text; remove it") from None
    return text
