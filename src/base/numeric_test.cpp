#include "base/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dgem {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Finite values to try a rounding on: every code's value, the midpoints between neighbours, and the floats next to both.
std::vector<float> probes(const std::vector<float>& magnitudes) {
  std::vector<float> out;
  const auto around = [&](float f) {
    for (const float g : {f, std::nextafterf(f, kInf), std::nextafterf(f, -kInf)}) {
      out.push_back(g);
      out.push_back(-g);
    }
  };
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    around(magnitudes[i]);
    if (i > 0) around((magnitudes[i - 1] + magnitudes[i]) / 2);
  }
  for (const float f : {1e-30f, 1e-45f, 1e3f, 1e6f}) around(f);
  return out;
}

// The code of the nearest magnitude, ties to the even code, found by looking at all of them. Saturates.
unsigned nearest_even(const std::vector<float>& magnitudes, float f) {
  unsigned best = 0;
  for (unsigned code = 1; code < magnitudes.size(); ++code) {
    const double to_best = std::fabs(double{magnitudes[best]} - std::fabs(double{f}));
    const double to_code = std::fabs(double{magnitudes[code]} - std::fabs(double{f}));
    if (to_code < to_best || (to_code == to_best && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Numeric, Bf16RoundTripsEveryCode) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 v{static_cast<uint16_t>(bits)};
    const float f = to_float(v);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(f)))) << bits;
    } else {
      EXPECT_EQ(to_bf16(f).bits, bits);
    }
  }
}

TEST(Numeric, Bf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {  // between each finite magnitude and the next
    const uint32_t low = bits << 16;
    EXPECT_EQ(to_bf16(std::bit_cast<float>(low | 0x7fffu)).bits, bits);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(low | 0x8000u)).bits, bits + bits % 2);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(low | 0x8001u)).bits, bits + 1);
  }
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), kInf);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Numeric, F16MatchesItsDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint32_t exponent = (bits >> 10) & 31u;
    const double fraction = bits & 0x3ffu;
    const float f = f16_to_float(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::signbit(f), bits >= 0x8000u);
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(f) : std::isnan(f)) << bits;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1 + fraction / 1024, static_cast<int>(exponent) - 15);
    EXPECT_EQ(std::fabs(f), static_cast<float>(magnitude)) << bits;
  }
}

TEST(Numeric, E4m3MatchesItsDefinitionAndRoundTrips) {
  for (unsigned code = 0; code < 256; ++code) {
    const float f = e4m3_to_float(static_cast<uint8_t>(code));
    const unsigned exponent = (code >> 3) & 15u, fraction = code & 7u;
    EXPECT_EQ(std::signbit(f), code >= 128);
    if ((code & 0x7fu) == 0x7fu) {
      EXPECT_TRUE(std::isnan(f));
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(1 + fraction / 8.0, static_cast<int>(exponent) - 7);
      EXPECT_EQ(std::fabs(f), static_cast<float>(magnitude)) << code;
    }
    EXPECT_EQ(float_to_e4m3(f), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(Numeric, E4m3RoundsToNearestEvenAndSaturates) {
  std::vector<float> magnitudes;
  for (int code = 0; code < 0x7f; ++code) magnitudes.push_back(e4m3_to_float(static_cast<uint8_t>(code)));
  for (const float f : probes(magnitudes)) {
    EXPECT_EQ(float_to_e4m3(f), nearest_even(magnitudes, f) | (std::signbit(f) ? 0x80u : 0u)) << f;
  }
  EXPECT_EQ(float_to_e4m3(kInf), 0x7e);
  EXPECT_EQ(float_to_e4m3(-kInf), 0xfe);
  EXPECT_EQ(float_to_e4m3(kNan) & 0x7f, 0x7f);
}

TEST(Numeric, E2m1RoundsToNearestEvenAndSaturates) {
  std::vector<float> magnitudes;
  for (uint8_t code = 0; code < 8; ++code) {
    magnitudes.push_back(e2m1_to_float(code));
    EXPECT_EQ(float_to_e2m1(e2m1_to_float(code)), code);
    EXPECT_EQ(float_to_e2m1(e2m1_to_float(code | 8)), code | 8);
  }
  EXPECT_EQ(magnitudes, (std::vector<float>{0, 0.5, 1, 1.5, 2, 3, 4, 6}));
  for (const float f : probes(magnitudes)) {
    EXPECT_EQ(float_to_e2m1(f), nearest_even(magnitudes, f) | (std::signbit(f) ? 8u : 0u)) << f;
  }
  EXPECT_EQ(float_to_e2m1(kInf), 7);
  EXPECT_EQ(float_to_e2m1(-kInf), 15);
  EXPECT_EQ(float_to_e2m1(kNan) & 7, 0);
}

}  // namespace
}  // namespace dgem
