// Reads tokenizer.json (Hugging Face's format) into the parts of a Tokenizer.
#pragma once

#include "text/tokenizer.h"

#include <string_view>

namespace dgem::text {

inline constexpr size_t kMaxTokenizerBytes = size_t{512} << 20;

// Accepts what the Gemma family uses: a BPE model with byte fallback and merges in either notation, a normalizer that
// writes U+2581 for spaces, no pre-tokenizer or a split at spaces (which never finds one then), added tokens without
// strip or normalize flags, the decoder that undoes all this. Anything else is refused with what was found.
Result<TokenizerParts> parse_tokenizer_json(std::string_view json);

}  // namespace dgem::text
