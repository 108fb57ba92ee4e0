#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace dgem {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "dgem: internal error at %s:%d: %s%s%s\n", file, line, condition, message.empty() ? "" : ": ",
               message.c_str());
  std::abort();
}

}  // namespace dgem
