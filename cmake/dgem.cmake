# Flags, and how a folder of src/ becomes a library with its tests beside it.

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)  # headers; src/base/fmt.cpp is its compiled half

add_library(dgem_flags INTERFACE)
target_include_directories(dgem_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)
target_link_libraries(dgem_flags INTERFACE Threads::Threads)
target_compile_definitions(dgem_flags INTERFACE DGEM_VERSION="${PROJECT_VERSION}")
# No -ffast-math and no contraction: sums keep their order, and a fused multiply-add stands only where a kernel says so.
target_compile_options(dgem_flags INTERFACE -Wall -Wextra -Wpedantic -ffp-contract=off -fno-strict-aliasing)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(dgem_flags INTERFACE -Wno-restrict)  # GCC 12 warns of its own std::string operator+
endif()
if(DGEM_SANITIZE)
  target_compile_options(dgem_flags INTERFACE -fsanitize=${DGEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
  target_link_options(dgem_flags INTERFACE -fsanitize=${DGEM_SANITIZE})
  # RapidJSON's stack adds to a null pointer while it is empty; nothing is read through it.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/json.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=pointer-overflow)
endif()
if(DGEM_FUZZ)
  target_compile_options(dgem_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(DGEM_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()

# dgem_module(name DEPENDS other...): library dgem_<name> of src/<name>/**.cpp; tests are the files *_test.cpp.
function(dgem_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/ops/cuda/")  # cuda.cmake adds what the build can have of it
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(TRANSFORM ARG_DEPENDS PREPEND dgem_)
  if(sources)
    add_library(dgem_${name} STATIC ${sources})
    target_link_libraries(dgem_${name} PUBLIC dgem_flags ${ARG_DEPENDS})
  else()
    add_library(dgem_${name} INTERFACE)
    target_link_libraries(dgem_${name} INTERFACE dgem_flags ${ARG_DEPENDS})
  endif()
  if(DGEM_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE dgem_${name} GTest::gtest_main rapidcheck)
    target_compile_definitions(${name}_test PRIVATE DGEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 1200)
  endif()
endfunction()

# Each instruction set has its own translation units, src/ops/cpu/*_<set>.cpp; the set is chosen at start by cpuid.
function(dgem_isa_flags)
  set(avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vnni -mavx512bf16
      -mprefer-vector-width=512)
  set(amx ${avx512} -mamx-tile -mamx-bf16)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 warns about the undefined registers in its own AVX-512 headers.
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
    list(APPEND amx -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set(optimize -O3)
  if(DGEM_SANITIZE)
    set(optimize -O1)  # instrumented kernels compile for minutes at -O3
  endif()
  foreach(set avx2 avx512 amx)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/*_${set}.cpp)
    set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${${set}};${optimize}")
  endforeach()
endfunction()

function(dgem_cli target)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  target_sources(${target} PRIVATE ${sources})
  target_link_libraries(${target} PRIVATE dgem_bench dgem_decide)
  # bin/dgem is the program for use; one for debugging or with sanitizers stays in its build folder.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT DGEM_SANITIZE)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/bin)
  endif()
endfunction()
