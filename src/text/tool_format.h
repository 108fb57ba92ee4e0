// How tools, their arguments and their results are written in prompts of the Gemma 4 family: an own notation with bare
// keys, in dictionary order, and strings between <|"|> tokens.
#pragma once

#include "base/json.h"
#include "text/pieces.h"

namespace dgem::text {

// declaration:NAME{description:...,parameters:{...}}; `tool` is {"type": "function", "function": {...}} or the function
// itself. Fields of a wrong kind are left out.
void write_declaration(const json::Value& tool, PieceWriter& out);

// A value: strings between <|"|>, lists in [], objects in {} with keys between <|"|> if quote_keys.
void write_value(const json::Value& value, bool quote_keys, PieceWriter& out);

// key:value,... of an object without its braces, keys bare.
void write_members(const json::Value& object, PieceWriter& out);

}  // namespace dgem::text
