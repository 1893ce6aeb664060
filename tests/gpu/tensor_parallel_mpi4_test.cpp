#include "tests/models/tensor_parallel.h"

temper::Device temper::device_of_split_models() { return temper::Device::cuda; }

int main(int argc, char** argv) {
  if (temper::device::find_gpus().gpus.empty()) return 1;
  temper::device::select_gpu(0);
  return temper::run_tests_on_ranks(argc, argv, 4);
}
