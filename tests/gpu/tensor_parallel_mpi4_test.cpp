#include "tests/gpu/gpu_ranks.h"
#include "tests/models/tensor_parallel.h"

temper::Device temper::device_of_split_models() { return temper::Device::cuda; }

int main(int argc, char** argv) {
  if (!temper::select_own_gpu_or_first()) return 1;
  return temper::run_tests_on_ranks(argc, argv, 4);
}
