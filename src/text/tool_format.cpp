#include "text/tool_format.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dgem::text {

namespace {

constexpr std::string_view kQuote = "<|\"|>";

std::string changed_case(std::string_view text, bool upper) {
  std::string out(text);
  for (char& c : out) {
    if (upper ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z')) c = static_cast<char>(c ^ 0x20);
  }
  return out;
}

// Members in the order of Jinja's dictsort: by key, letter case aside.
std::vector<const json::Member*> sorted(const json::Object& object) {
  std::vector<std::pair<std::string, const json::Member*>> keyed;
  for (const json::Member& member : object) keyed.emplace_back(changed_case(member.first, false), &member);
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const json::Member*> members;
  for (const auto& [key, member] : keyed) members.push_back(member);
  return members;
}

void write_quoted(std::string_view text, PieceWriter& out) {
  out.trusted(kQuote);
  out.data(text);
  out.trusted(kQuote);
}

// Jinja's idea of true.
bool holds(const json::Value* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->boolean();
  if (value->is_string()) return !value->string().empty();
  if (value->is_array()) return !value->array().empty();
  if (value->is_object()) return !value->object().empty();
  return value->number() != 0.0;
}

std::string_view text_of(const json::Value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->string()) : std::string_view();
}

// Separates what is written one after the other inside a pair of brackets.
class Commas {
 public:
  explicit Commas(PieceWriter& out) : out_(out) {}
  void next() {
    if (!first_) out_.trusted(",");
    first_ = false;
  }

 private:
  PieceWriter& out_;
  bool first_ = true;
};

void write_required(const json::Value& names, PieceWriter& out) {
  out.trusted("required:[");
  Commas commas(out);
  for (const json::Value& name : names.is_array() ? names.array() : json::Array{}) {
    commas.next();
    write_quoted(text_of(&name), out);
  }
  out.trusted("]");
}

// One type in capitals, or a list of them.
void write_type(const json::Value* type, PieceWriter& out) {
  out.trusted("type:");
  if (type == nullptr || !type->is_array()) {
    write_quoted(changed_case(text_of(type), true), out);
    return;
  }
  out.trusted("[");
  Commas commas(out);
  for (const json::Value& one : type->array()) {
    commas.next();
    write_quoted(changed_case(text_of(&one), true), out);
  }
  out.trusted("]");
}

void write_properties(const json::Object& properties, bool skip_schema_keys, PieceWriter& out);

void write_items(const json::Object& items, PieceWriter& out) {
  out.trusted("items:{");
  Commas commas(out);
  for (const json::Member* member : sorted(items)) {
    const auto& [key, value] = *member;
    if (value.is_null()) continue;
    commas.next();
    if (key == "properties") {
      write_properties(value.is_object() ? value.object() : json::Object{}, false, out);
    } else if (key == "required") {
      write_required(value, out);
    } else if (key == "type") {
      write_type(&value, out);
    } else {
      out.data(key);
      out.trusted(":");
      write_value(value, true, out);
    }
  }
  out.trusted("}");
}

void write_property(const json::Value& property, PieceWriter& out) {
  const std::string type = changed_case(text_of(property.find("type")), true);
  Commas commas(out);
  if (const json::Value* description = property.find("description"); holds(description)) {
    commas.next();
    out.trusted("description:");
    write_quoted(text_of(description), out);
  }
  if (const json::Value* values = property.find("enum"); type == "STRING" && holds(values)) {
    commas.next();
    out.trusted("enum:");
    write_value(*values, true, out);
  }
  if (const json::Value* items = property.find("items"); type == "ARRAY" && holds(items) && items->is_object()) {
    commas.next();
    write_items(items->object(), out);
  }
  if (holds(property.find("nullable"))) {
    commas.next();
    out.trusted("nullable:true");
  }
  if (type == "OBJECT") {
    const json::Value* properties = property.find("properties");
    const bool own = properties == nullptr || !properties->is_object();  // then its other keys count as properties
    commas.next();
    write_properties(own ? property.object() : properties->object(), own, out);
    if (const json::Value* required = property.find("required"); holds(required)) {
      commas.next();
      write_required(*required, out);
    }
  }
  commas.next();
  write_type(property.find("type"), out);
}

void write_properties(const json::Object& properties, bool skip_schema_keys, PieceWriter& out) {
  constexpr std::array<std::string_view, 5> kSchemaKeys = {"description", "type", "properties", "required", "nullable"};
  out.trusted("properties:{");
  Commas commas(out);
  for (const json::Member* member : sorted(properties)) {
    const auto& [key, value] = *member;
    if (skip_schema_keys && std::find(kSchemaKeys.begin(), kSchemaKeys.end(), key) != kSchemaKeys.end()) continue;
    commas.next();
    out.data(key);
    out.trusted(":{");
    write_property(value, out);
    out.trusted("}");
  }
  out.trusted("}");
}

}  // namespace

void write_value(const json::Value& value, bool quote_keys, PieceWriter& out) {
  if (value.is_string()) {
    write_quoted(value.string(), out);
  } else if (value.is_array()) {
    out.trusted("[");
    Commas commas(out);
    for (const json::Value& element : value.array()) {
      commas.next();
      write_value(element, quote_keys, out);
    }
    out.trusted("]");
  } else if (value.is_object()) {
    out.trusted("{");
    Commas commas(out);
    for (const json::Member* member : sorted(value.object())) {
      commas.next();
      if (quote_keys) {
        write_quoted(member->first, out);
      } else {
        out.data(member->first);
      }
      out.trusted(":");
      write_value(member->second, quote_keys, out);
    }
    out.trusted("}");
  } else {
    out.data(value.is_null() ? "None" : json::write(value));  // as Python writes it
  }
}

void write_members(const json::Value& object, PieceWriter& out) {
  Commas commas(out);
  for (const json::Member* member : sorted(object.object())) {
    commas.next();
    out.data(member->first);
    out.trusted(":");
    write_value(member->second, false, out);
  }
}

void write_declaration(const json::Value& tool, PieceWriter& out) {
  const json::Value* wrapped = tool.find("function");
  const json::Value& function = wrapped == nullptr ? tool : *wrapped;
  out.trusted("declaration:");
  out.data(text_of(function.find("name")));
  out.trusted("{description:");
  write_quoted(text_of(function.find("description")), out);
  if (const json::Value* parameters = function.find("parameters"); holds(parameters)) {
    out.trusted(",parameters:{");
    Commas commas(out);
    if (const json::Value* properties = parameters->find("properties"); holds(properties) && properties->is_object()) {
      commas.next();
      write_properties(properties->object(), false, out);
    }
    if (const json::Value* required = parameters->find("required"); holds(required)) {
      commas.next();
      write_required(*required, out);
    }
    if (const json::Value* type = parameters->find("type"); holds(type)) {
      commas.next();
      write_type(type, out);
    }
    out.trusted("}");
  }
  out.trusted("}");
}

}  // namespace dgem::text
