# The CUDA device, src/ops/cuda: part of dgem_ops in every build. Without the CUDA compiler it is a file that says so.
# Included behind the modules. Needs nothing but cudart, which is linked statically.

set(dgem_cuda_dir ${CMAKE_SOURCE_DIR}/src/ops/cuda)
find_program(DGEM_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin)
mark_as_advanced(DGEM_NVCC)
set(dgem_cuda_default OFF)
if(DGEM_NVCC AND NOT DGEM_SANITIZE)
  set(dgem_cuda_default ON)
endif()
option(DGEM_CUDA "Build the CUDA device" ${dgem_cuda_default})
set(DGEM_CUDA_ARCHITECTURES "89;90a;120a" CACHE STRING "Compute capabilities to compile for")

if(NOT DGEM_CUDA)
  target_sources(dgem_ops PRIVATE ${dgem_cuda_dir}/no_cuda.cpp)
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND DGEM_NVCC)
  set(CMAKE_CUDA_COMPILER ${DGEM_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # said below: CMake 3.25 does not know all of them
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # nor this one
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit REQUIRED)

# Kernels, compiled apart from the flags of the C++ code. Sums keep their order: a fused multiply-add stands only where a
# kernel says so.
file(GLOB dgem_cuda_kernels CONFIGURE_DEPENDS ${dgem_cuda_dir}/*.cu)
add_library(dgem_cuda_kernels OBJECT ${dgem_cuda_kernels})
set_target_properties(dgem_cuda_kernels PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_ARCHITECTURES OFF)
target_include_directories(dgem_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(dgem_cuda_kernels PRIVATE -fmad=false -Xcompiler=-Wall)
foreach(arch ${DGEM_CUDA_ARCHITECTURES})
  target_compile_options(dgem_cuda_kernels PRIVATE "SHELL:-gencode arch=compute_${arch},code=sm_${arch}")
endforeach()

file(GLOB dgem_cuda_sources CONFIGURE_DEPENDS ${dgem_cuda_dir}/*.cpp)
list(FILTER dgem_cuda_sources EXCLUDE REGEX "(_test|no_cuda)\\.cpp$")
target_sources(dgem_ops PRIVATE ${dgem_cuda_sources} $<TARGET_OBJECTS:dgem_cuda_kernels>)
target_link_libraries(dgem_ops PUBLIC CUDA::cudart_static)

# Needs a GPU, so it is no test of ctest: scripts/gpu_check.sh runs it.
if(DGEM_TESTS)
  add_executable(cuda_test ${dgem_cuda_dir}/cuda_test.cpp)
  target_link_libraries(cuda_test PRIVATE dgem_ops GTest::gtest_main)
endif()
