// Finding the device, with a message for each way in which there may be none.
#include "ops/cuda/cuda_ops_impl.h"

namespace dgem::ops::cuda {
namespace {

// An error of the runtime, as advice to the user.
Error unusable(int device, cudaError_t status) {
  cudaGetLastError();
  if (status == cudaErrorNoKernelImageForDevice) {
    return make_error(
        "GPU {} cannot run this build, which has code for compute capability 8.9, 9.0 and 12.0: use the device cpu", device);
  }
  return make_error("GPU {} cannot be used: {}", device, cudaGetErrorString(status));
}

}  // namespace

Result<std::shared_ptr<Ops>> make_cuda_ops(const CudaOptions& options) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    cudaGetLastError();
    return make_error("no NVIDIA driver is installed here: install one, or use the device cpu");
  }
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return make_error("the NVIDIA driver is too old: it is for CUDA {}.{}, this build needs {}.{}", driver / 1000,
                      driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (status != cudaSuccess) return make_error("the NVIDIA driver finds no GPU: {}", cudaGetErrorString(status));
  if (options.device < 0 || options.device >= count) {
    return make_error("there is no GPU {}: the driver knows {}, counted from 0", options.device, count);
  }
  cudaDeviceProp properties{};
  status = cudaGetDeviceProperties(&properties, options.device);
  if (status == cudaSuccess) status = cudaSetDevice(options.device);
  if (status == cudaSuccess) status = probe_kernels();
  if (status != cudaSuccess) return unusable(options.device, status);
  const std::string name =
      fmt::format("cuda:{} ({}, {} activations)", options.device, properties.name, name_of(options.precision));
  try {
    return std::shared_ptr<Ops>(std::make_shared<CudaOps>(options.device, name, options.precision));
  } catch (const Fault& fault) {
    return make_error("GPU {} cannot be used: {}", options.device, fault.what());
  }
}

}  // namespace dgem::ops::cuda
