"""pw.torch.profile measures a CNN and a small GPT; what it writes is simulated, and sizes are those that autograd keeps.

usage: profile_test.py PIPEWRIGHT SOURCE PYTHON_PACKAGE
"""
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "support"), *sys.argv[3:]]
import torch_python

torch_python.use("torch")

import torch
from torch import nn

try:
    import pipewright as pw
except ImportError as error:
    torch_python.skip(f"the Python module was not built for {sys.executable}: {error}")

torch.set_num_threads(1)


class Block(nn.Module):

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.feed(x)


def seconds(layer, *keys):
    return sum(int(layer[key].removesuffix(" ns")) for key in keys) / 1e9


def simulated(folder, model, example, **how):
    """The measured model on one stage: the step is what was measured, and the update."""
    file = folder / "model.yaml"
    measured = pw.torch.profile(model, example, repeats=3, to=file, **how)
    scenario = pw.Scenario(model={"file": str(file)}, cluster={"nodes": 1, "node": {"devices": 2, "device": "xeon-8480-core"}},
                           training={"micro_batch_size": len(example), "micro_batches": 4, "precision": "fp32", "optimizer": "sgd"},
                           plan={"stages": 1, "schedule": "gpipe"})
    whole = sum(seconds(layer, "forward", "backward_input", "backward_weight") for layer in measured["layers"])
    one = pw.simulate(scenario)
    assert 0 <= round(one.step_time - 4 * whole, 9) <= 1e-3, (whole, one.step_time)  # the rest is the update
    assert pw.simulate(scenario.with_({"plan.stages": 2})).fits
    print(f"{measured['name']}: {len(measured['layers'])} layers, {1e3 * whole:.1f} ms for {len(example)} samples")
    return {layer["name"]: layer for layer in measured["layers"]}


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
                        nn.Flatten(), nn.Linear(16 * 64, 10))
    layers = simulated(folder, cnn, images, name="cnn", loss=lambda y: nn.functional.cross_entropy(y, labels))
    assert list(layers) == ["0-Conv2d", "1-ReLU", "2-MaxPool2d", "3-Conv2d", "4-ReLU", "5-Flatten", "6-Linear", "loss"]
    assert [layers[name]["parameters"] for name in ("0-Conv2d", "1-ReLU", "3-Conv2d", "6-Linear")] == [224, 0, 1168, 10250]
    # fp32: the convolution keeps its input, ReLU its output, which is what the pooling keeps, too, with positions of 8 B.
    assert layers["0-Conv2d"]["stash"] == f"{4 * 4 * 3 * 256} B" and layers["0-Conv2d"]["activation"] == f"{4 * 4 * 8 * 256} B"
    assert layers["1-ReLU"]["stash"] == f"{4 * 4 * 8 * 256} B" and layers["2-MaxPool2d"]["stash"] == f"{8 * 4 * 8 * 64} B"
    assert layers["5-Flatten"]["stash"] == "0 B" and layers["6-Linear"]["stash"] == "0 B"  # ReLU's output, counted there
    assert layers["0-Conv2d"]["backward_input"] == "0 ns" and seconds(layers["0-Conv2d"], "backward_weight") > 0
    assert layers["1-ReLU"]["backward_weight"] == "0 ns" and seconds(layers["1-ReLU"], "backward_input") > 0

    tokens, following = torch.randint(64, (2, 32)), torch.randint(64, (2, 32))
    gpt = [nn.Embedding(64, 48), *(Block(48, 4) for _ in range(3)), nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 64))]
    layers = simulated(folder, gpt, tokens, name="gpt",
                       loss=lambda y: nn.functional.cross_entropy(y.flatten(0, 1), following.flatten()))
    assert [layer["parameters"] for layer in layers.values()] == [64 * 48] + 3 * [12 * 48 * 48 + 13 * 48] + [2 * 48 + 48 * 64 + 64, 0]
    assert layers["1-Block"]["stash"] == layers["2-Block"]["stash"] != "0 B"
    assert layers["0-Embedding"]["stash"] == f"{8 * 2 * 32} B"

    # Where work is issued ahead, each run is timed until it has ended. 3 + 2 runs in groups of 4 are 8: with weights 2
    # forwards and 2 backwards each, without them 2 and that of the second module; each is waited for before and behind.
    waited, settle = [], pw.torch._settle
    pw.torch._settle = waited.append
    pw.torch.profile(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.randn(2, 3), repeats=3)
    pw.torch._settle = settle
    assert len(waited) == 2 * 8 * (4 + 3), len(waited)

    # Gradients that are there stay, and nothing else is left behind.
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model(torch.randn(2, 3)).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    with torch.no_grad():
        measured = pw.torch.profile(model, torch.randn(2, 3), repeats=1)
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), before))
    assert all(seconds(layer, "backward_weight") > 0 for layer in measured["layers"])

    for model, words in [([], "has no modules"),
                         (nn.Sequential(nn.Linear(3, 3, device="meta")), "0-Linear lies on meta, the example on cpu"),
                         (Block(48, 4), "is a Block, which does not say in what order its parts run"),
                         ([nn.Linear(3, 4), nn.Linear(3, 4)], "1-Linear: does not run on what the layer before returns"),
                         (["linear"], "model[0]: is a str; give modules")]:
        try:
            pw.torch.profile(model, torch.randn(2, 3))
        except pw.InputError as error:
            assert words in str(error), error
        else:
            raise AssertionError(model)
