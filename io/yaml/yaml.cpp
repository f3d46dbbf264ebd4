#include "io/yaml/yaml.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "io/text/errors.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {

YamlPlace::operator Place() const {
  if (!source) return {};
  return source->is_file ? Place{source->name, line, column} : Place{source->name, 0, 0};
}

const Yaml* Yaml::find(std::string_view key) const {
  const auto entry = std::ranges::find_if(map, [&](const auto& item) { return item.first.text == key; });
  return entry == map.end() ? nullptr : &entry->second;
}

Yaml* Yaml::find(std::string_view key) {
  return const_cast<Yaml*>(std::as_const(*this).find(key));
}

namespace {

using SourcePointer = std::shared_ptr<const YamlSource>;

std::string deep_message() {
  return fmt::format("nested deeper than {} levels; flatten it", kDeepestInput);
}
std::string many_message() {
  return fmt::format("more than {} values in one file; write repeated layers once with repeat: N", kMostValues);
}

YamlPlace at(const SourcePointer& source, const YAML::Mark& mark) {
  if (mark.is_null()) return {source, 1, 1};
  return {source, mark.line + 1, mark.column + 1};  // yaml-cpp counts from 0
}

// Builds the tree from yaml-cpp's events, where anchors, tags and duplicates are still to be seen and nothing has been
// expanded yet.
class Builder : public YAML::EventHandler {
 public:
  Builder(SourcePointer source, Errors& errors) : source_(std::move(source)), errors_(errors) {}

  Yaml root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      throw InputError(at(source_, mark), "a second YAML document starts here; one document per file");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(Yaml::Type::Null, mark, "?", anchor));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    errors_.add(at(source_, mark), "an alias (*name) is not allowed here; write the value out");
    Yaml empty;
    empty.place = at(source_, mark);
    add(std::move(empty));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Yaml scalar = node(Yaml::Type::Scalar, mark, tag, anchor);
    scalar.scalar = value;
    scalar.quoted = tag == "!";  // yaml-cpp's tag of quoted and block scalars
    add(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(node(Yaml::Type::List, mark, tag, anchor));
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(node(Yaml::Type::Map, mark, tag, anchor));
  }
  void OnMapEnd() override {
    refuse_duplicates(open_.back().node);
    close();
  }

 private:
  struct Level {
    Yaml node;
    std::optional<YamlKey> key;  // of a map: the key whose value comes next
  };

  Yaml node(Yaml::Type type, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (++values_ > kMostValues) throw InputError(at(source_, mark), many_message());
    if (anchor != 0) errors_.add(at(source_, mark), "an anchor (&name) is not allowed here; write the value out");
    if (tag != "?" && tag != "!" && !tag.empty())
      errors_.add(at(source_, mark),
                  fmt::format("the tag {} is not allowed here; write the plain value", in_quotes(tag)));
    Yaml made;
    made.type = type;
    made.place = at(source_, mark);
    return made;
  }

  bool key_expected() const { return !open_.empty() && open_.back().node.is(Yaml::Type::Map) && !open_.back().key; }

  void add(Yaml value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (key_expected()) {
      take_key(std::move(value));
    } else if (Level& level = open_.back(); level.key) {
      level.node.map.emplace_back(std::move(*level.key), std::move(value));
      level.key.reset();
    } else {
      level.node.list.push_back(std::move(value));
    }
  }

  void take_key(Yaml key) {
    if (!key.is(Yaml::Type::Scalar))
      throw InputError(key.place, "a key must be plain text; quote it, or close the bracket before");
    if (key.scalar == "<<" && !key.quoted)
      errors_.add(key.place, "a merge key (<<) is not allowed here; write the values out");
    open_.back().key = YamlKey{std::move(key.scalar), key.place};
  }

  void open(Yaml made) {
    if (key_expected()) throw InputError(made.place, "a key must be plain text; quote it, or close the bracket before");
    if (open_.size() >= kDeepestInput) throw InputError(made.place, deep_message());
    open_.push_back({std::move(made), std::nullopt});
  }

  void close() {
    Yaml done = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(done));
  }

  void refuse_duplicates(const Yaml& map) {
    std::vector<const YamlKey*> keys;
    for (const auto& [key, value] : map.map)
      keys.push_back(&key);
    std::ranges::stable_sort(keys, [](const auto* a, const auto* b) { return a->text < b->text; });
    for (std::size_t i = 1; i < keys.size(); ++i)
      if (keys[i]->text == keys[i - 1]->text)
        errors_.add(keys[i]->place, fmt::format("duplicate key {}; it stands already in line {}, keep one of them",
                                                in_quotes(keys[i]->text), keys[i - 1]->place.line));
  }

  SourcePointer source_;
  Errors& errors_;
  std::vector<Level> open_;
  Yaml root_;
  std::size_t values_ = 0;
  int documents_ = 0;
};

// Only text reaches the parser: it takes byte 0x04 for the end of the file and a zero for UTF-16.
void refuse_binary(std::string_view text, const SourcePointer& source) {
  YamlPlace place{source, 1, 1};
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7f;
    const bool lone_return = byte == '\r' && (i + 1 == text.size() || text[i + 1] != '\n');
    if (length == 0 || control || lone_return)
      throw InputError(place, fmt::format("byte 0x{:02x} is not text; the file must be UTF-8 text", byte));
    i += length;
    if (byte == '\n')
      ++place.line, place.column = 1;
    else
      place.column += static_cast<int>(length);
  }
}

// yaml-cpp keeps the tokens of a whole [flow] collection before it tells anything of it. Nesting and number of values
// are bounded here first: 8 MiB of brackets would otherwise take gigabytes. Quotes that open a value and comments are
// skipped.
void refuse_bombs(std::string_view text, const SourcePointer& source) {
  YamlPlace place{source, 1, 0};
  int depth = 0;
  std::size_t commas = 0;
  char quote = 0, before = ' ';
  bool comment = false;
  for (const char c : text) {
    ++place.column;
    const bool opens = before == ' ' || before == '\n' || before == '[' || before == '{' || before == ',';
    if (c == '\n') ++place.line, place.column = 0, comment = false;
    if (quote != 0) {
      if (c == quote && (quote == '\'' || before != '\\')) quote = 0;
    } else if (!comment) {
      if ((c == '"' || c == '\'') && opens) quote = c;
      if (c == '#' && (before == ' ' || before == '\n')) comment = true;
      if (c == '[' || c == '{') ++depth;
      if ((c == ']' || c == '}') && depth > 0) --depth;
      if (c == ',' && depth > 0) ++commas;
    }
    before = before == '\\' && c == '\\' ? ' ' : c;
    if (depth > kDeepestInput) throw InputError(place, deep_message());
    if (commas > kMostValues) throw InputError(place, many_message());
  }
}

// The first line with a tab among its leading blanks, of those up to `last`; 0: none.
int indented_by_tab(std::string_view text, int last) {
  int line = 1;
  bool leading = true;
  for (const char c : text) {
    if (c == '\t' && leading) return line;
    leading = c == '\n' || (leading && c == ' ');
    if (c == '\n' && ++line > last) break;
  }
  return 0;
}

// What yaml-cpp calls an error begins so, and this is what a user would call it.
struct Wording {
  std::string_view theirs, ours;
};
const std::array kWordings = {
    Wording{YAML::ErrorMsg::END_OF_SEQ_FLOW, "a list that begins with [ is not closed"},
    Wording{YAML::ErrorMsg::END_OF_MAP_FLOW, "a map that begins with { is not closed"},
    Wording{YAML::ErrorMsg::END_OF_MAP,
            "this line is indented neither as the map before it nor as what is around that"},
    Wording{YAML::ErrorMsg::END_OF_SEQ,
            "this line is indented neither as the list before it nor as what is around that"},
    Wording{YAML::ErrorMsg::MAP_VALUE, "a colon stands where no value can follow"},
    Wording{YAML::ErrorMsg::MAP_KEY, "a key stands where there can be none"},
    Wording{YAML::ErrorMsg::BLOCK_ENTRY, "an item of a list (-) stands where there can be none"},
    Wording{YAML::ErrorMsg::FLOW_END, "this bracket closes nothing"},
    Wording{YAML::ErrorMsg::UNKNOWN_TOKEN, "a value cannot begin with this character; put it in quotes"},
    Wording{YAML::ErrorMsg::DOC_IN_SCALAR, "a quote is not closed before the next document; close it"},
    Wording{YAML::ErrorMsg::EOF_IN_SCALAR, "a quote is not closed; close it"},
    Wording{YAML::ErrorMsg::CHAR_IN_SCALAR, "a text holds a character that it cannot hold; put it in quotes"},
    Wording{YAML::ErrorMsg::INVALID_ESCAPE,
            "this is not an escape of YAML; use single quotes, or write \\\\ for a backslash"},
    Wording{YAML::ErrorMsg::INVALID_HEX, "\\x, \\u and \\U need hexadecimal digits; use single quotes for a backslash"},
    Wording{YAML::ErrorMsg::INVALID_UNICODE, "there is no character of this number; correct the escape"},
    Wording{YAML::ErrorMsg::ANCHOR_NOT_FOUND, "a value that begins with & is an anchor; put it in quotes"},
    Wording{YAML::ErrorMsg::CHAR_IN_ANCHOR, "a value that begins with & is an anchor; put it in quotes"},
    Wording{YAML::ErrorMsg::MULTIPLE_ANCHORS, "a value that begins with & is an anchor; put it in quotes"},
    Wording{YAML::ErrorMsg::ALIAS_NOT_FOUND, "a value that begins with * is an alias; put it in quotes"},
    Wording{YAML::ErrorMsg::CHAR_IN_ALIAS, "a value that begins with * is an alias; put it in quotes"},
    Wording{YAML::ErrorMsg::UNKNOWN_ANCHOR, "a value that begins with * is an alias; put it in quotes"},
    Wording{YAML::ErrorMsg::END_OF_VERBATIM_TAG, "a value that begins with ! is a tag; put it in quotes"},
    Wording{YAML::ErrorMsg::CHAR_IN_TAG_HANDLE, "a value that begins with ! is a tag; put it in quotes"},
    Wording{YAML::ErrorMsg::TAG_WITH_NO_SUFFIX, "a value that begins with ! is a tag; put it in quotes"},
    Wording{YAML::ErrorMsg::MULTIPLE_TAGS, "a value that begins with ! is a tag; put it in quotes"},
    Wording{YAML::ErrorMsg::CHAR_IN_BLOCK, "a line break has to follow | or >; write the text on the lines below"},
    Wording{YAML::ErrorMsg::ZERO_INDENT_IN_BLOCK, "a text below | or > has to be indented; leave out the 0"},
    Wording{YAML::ErrorMsg::TAB_IN_INDENTATION, "this line is indented by a tab; YAML indents by spaces"},
    Wording{YAML::ErrorMsg::YAML_DIRECTIVE_ARGS, "a line that begins with % is a directive; take it out"},
    Wording{YAML::ErrorMsg::YAML_VERSION, "a line that begins with % is a directive; take it out"},
    Wording{YAML::ErrorMsg::YAML_MAJOR_VERSION, "a line that begins with % is a directive; take it out"},
    Wording{YAML::ErrorMsg::REPEATED_YAML_DIRECTIVE, "a line that begins with % is a directive; take it out"},
    Wording{YAML::ErrorMsg::TAG_DIRECTIVE_ARGS, "a line that begins with % is a directive; take it out"},
    Wording{YAML::ErrorMsg::REPEATED_TAG_DIRECTIVE, "a line that begins with % is a directive; take it out"},
};

std::string in_words(const YAML::Exception& error) {
  const auto found =
      std::ranges::find_if(kWordings, [&](const Wording& each) { return error.msg.starts_with(each.theirs); });
  const std::string ours(found == kWordings.end() ? "it cannot be read from here on" : found->ours);
  const bool has_way_out = ours.find("; ") != std::string::npos;
  return "this is not valid YAML: " + ours +
         (has_way_out ? "" : "; look at the indentation, quotes, brackets and colons just before");
}

Yaml parse(std::string_view text, const SourcePointer& source) {
  refuse_binary(text, source);
  refuse_bombs(text, source);
  Errors errors;
  Builder builder(source, errors);
  try {
    // Without a line end yaml-cpp takes an unclosed bracket at the end of the text for a key.
    std::istringstream stream{std::string(text) + "\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    if (const int line = indented_by_tab(text, error.mark.line + 1); line > 0)
      errors.add(YamlPlace{source, line, 1}, "this line is indented by a tab; YAML indents by spaces");
    else
      errors.add(at(source, error.mark), in_words(error));
  } catch (const InputError& error) {
    errors.add(error);
  }
  errors.throw_if_any();
  return builder.root();
}

std::string folder_prefix(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Item `key` of a list, by number.
Yaml& item(Yaml& list, const std::string& key, const Place& place) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size() || index >= list.list.size())
    throw InputError(place, fmt::format("{} is not an item of a list of {}; write a number from 0 to {}",
                                        in_quotes(key), list.list.size(), static_cast<long>(list.list.size()) - 1));
  return list.list[index];
}

// `key=null`: the key goes, as if the file did not have it.
void remove(Yaml& root, const Assignment& assignment) {
  const Place place = assignment.value.place;
  Yaml* node = &root;
  for (std::size_t i = 0; i + 1 < assignment.keys.size() && node; ++i)
    node = node->is(Yaml::Type::List) ? &item(*node, assignment.keys[i], place) : node->find(assignment.keys[i]);
  if (node && node->is(Yaml::Type::List))
    throw InputError(place, "an item of a list cannot be removed; give the whole list again");
  const auto removed =
      node ? std::erase_if(node->map, [&](const auto& entry) { return entry.first.text == assignment.keys.back(); })
           : 0;
  if (removed == 0) throw InputError(place, "there is no such key to remove; leave this --set out");
}

// {auto:[2,4]} -> {auto: [2,4]}: what is not YAML for want of a space.
std::string with_spaced_colons(const std::string& text, std::size_t begin) {
  std::string spaced;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    spaced += text[i];
    if (i < begin) continue;
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (text[i] == ':' && depth > 0 && i + 1 < text.size() && text[i + 1] != ' ') spaced += ' ';
  }
  return spaced;
}

}  // namespace

Yaml parse_yaml(const std::string& text, const std::string& file) {
  const auto source =
      std::make_shared<const YamlSource>(YamlSource{file == "-" ? "standard input" : file, folder_prefix(file), true});
  if (text.starts_with("SQLite format 3"))
    throw InputError(Place{source->name, 0, 0},
                     "is an SQLite database, not YAML; rows of a sweep are shown by `pipewright sweep FILE`");
  Yaml root = parse(text, source);
  if (root.is(Yaml::Type::Null)) throw InputError(Place{source->name, 0, 0}, "is empty; see scenarios/quickstart.yaml");
  return root;
}

Assignment parse_assignment(const std::string& text) {
  const std::string quoted = in_quotes(text), shown = quoted.substr(1, quoted.rfind('"') - 1);
  const auto source = std::make_shared<const YamlSource>(YamlSource{"--set " + shown, "", false});
  const Place place{source->name, 0, 0};
  const std::size_t equals = text.find('=');
  if (equals == 0) throw InputError(place, "has no key; write e.g. --set training.micro_batches=8");
  if (equals == std::string::npos) throw InputError(place, "has no value; write e.g. --set training.micro_batches=8");
  Assignment assignment;
  std::size_t begin = 0;
  while (begin <= equals) {
    const std::size_t end = std::min(text.find('.', begin), equals);
    if (end == begin) throw InputError(place, "has an empty key; write e.g. --set training.micro_batches=8");
    assignment.keys.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (assignment.keys.size() > kDeepestInput) throw InputError(place, deep_message());
  if (text.find_first_not_of(" \t", equals + 1) == std::string::npos)
    throw InputError(place, "has no value; write e.g. --set training.micro_batches=8, or =null to remove the key");
  try {
    assignment.value = parse(std::string_view(text).substr(equals + 1), source);
  } catch (const InputError& error) {
    const std::string spaced = with_spaced_colons(text, equals + 1);
    if (spaced == text) throw;
    throw InputError(fmt::format("{}; in braces a space follows a colon: --set '{}'", error.what(), spaced));
  }
  if (assignment.value.is(Yaml::Type::Null)) assignment.value.place = {source, 0, 0};
  return assignment;
}

void set(Yaml& root, const Assignment& assignment) {
  if (assignment.value.is(Yaml::Type::Null)) return remove(root, assignment);
  const Place place = assignment.value.place;
  Yaml* node = &root;
  std::string path;
  for (const std::string& key : assignment.keys) {
    if (node->is(Yaml::Type::List)) {
      node = &item(*node, key, place);
    } else {
      if (node->is(Yaml::Type::Scalar))
        throw InputError(place, fmt::format("{} is {}, not a map that could hold {}", path.empty() ? "the file" : path,
                                            in_quotes(node->scalar), in_quotes(key)));
      if (node->is(Yaml::Type::Null)) node->type = Yaml::Type::Map, node->place = assignment.value.place;
      Yaml* next = node->find(key);
      if (!next) next = &node->map.emplace_back(YamlKey{key, assignment.value.place}, Yaml{}).second;
      node = next;
    }
    path += (path.empty() ? "" : ".") + key;
  }
  *node = assignment.value;
}

}  // namespace pipewright::io
