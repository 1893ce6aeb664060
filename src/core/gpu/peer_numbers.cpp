#include "src/core/gpu/peer_numbers.h"

#ifdef TEMPER_CUDA
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "src/core/gpu/driver.h"
#endif

namespace temper::device {

#ifndef TEMPER_CUDA

std::unique_ptr<PeerNumbers> PeerNumbers::make(int64_t) { return nullptr; }
std::unique_ptr<PeerNumbers> PeerNumbers::open(const std::string&, int64_t) { return nullptr; }
PeerNumbers::~PeerNumbers() = default;
void PeerNumbers::forget_name() {}
void PeerNumbers::write(Lane&, int64_t, uint32_t) const {}
void PeerNumbers::wait(Lane&, int64_t, uint32_t) const {}
void PeerNumbers::set(int64_t, uint32_t) const {}
uint32_t PeerNumbers::get(int64_t) const { return 0; }

#else

namespace {

struct Driver {
  decltype(&::cuStreamWaitValue32) wait;
  decltype(&::cuStreamWriteValue32) write;

  Driver() {
    find_in_driver(wait, "cuStreamWaitValue32");
    find_in_driver(write, "cuStreamWriteValue32");
  }
};
const Driver& driver() {
  static const Driver functions;
  return functions;
}

}  // namespace

std::unique_ptr<PeerNumbers> PeerNumbers::make(int64_t count) {
  // The name is that of no process in another container either, where process numbers are the same.
  std::random_device any;
  const std::string name = fmt::format("/temper-{}-{:08x}{:08x}", ::getpid(), any(), any());
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return nullptr;
  // Pages now: a file system that is full says so here.
  std::unique_ptr<PeerNumbers> numbers =
      ::posix_fallocate(file, 0, count * kApart) == 0 ? map(file, count) : nullptr;
  ::close(file);
  if (numbers)
    numbers->name_ = name;
  else
    (void)::shm_unlink(name.c_str());
  return numbers;
}

std::unique_ptr<PeerNumbers> PeerNumbers::open(const std::string& name, int64_t count) {
  const int file = ::shm_open(name.c_str(), O_RDWR, 0);
  if (file < 0) return nullptr;
  const bool whole = ::lseek(file, 0, SEEK_END) >= count * kApart;
  std::unique_ptr<PeerNumbers> numbers = whole ? map(file, count) : nullptr;
  ::close(file);
  return numbers;
}

std::unique_ptr<PeerNumbers> PeerNumbers::map(int file, int64_t count) {
  const int64_t bytes = count * kApart;
  void* const base = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) return nullptr;
  std::unique_ptr<PeerNumbers> numbers(new PeerNumbers);
  numbers->base_ = static_cast<char*>(base);
  numbers->bytes_ = bytes;
  if (cudaHostRegister(base, static_cast<size_t>(bytes), cudaHostRegisterMapped) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  void* on_gpu = nullptr;
  CUDA_CHECK(cudaHostGetDevicePointer(&on_gpu, base, 0));
  numbers->on_gpu_ = reinterpret_cast<uint64_t>(on_gpu);
  return numbers;
}

PeerNumbers::~PeerNumbers() {
  forget_name();
  if (on_gpu_ != 0) (void)cudaHostUnregister(base_);
  (void)::munmap(base_, static_cast<size_t>(bytes_));
}

void PeerNumbers::forget_name() {
  if (!name_.empty()) (void)::shm_unlink(name_.c_str());
  name_.clear();
}

void PeerNumbers::write(Lane& lane, int64_t number, uint32_t value) const {
  check_driver(driver().write(stream_of(lane), address(number), value, CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue32");
}

void PeerNumbers::wait(Lane& lane, int64_t number, uint32_t least) const {
  check_driver(driver().wait(stream_of(lane), address(number), least, CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue32");
}

void PeerNumbers::set(int64_t number, uint32_t value) const { std::atomic_ref(on_host(number)).store(value); }
uint32_t PeerNumbers::get(int64_t number) const { return std::atomic_ref(on_host(number)).load(); }

#endif

}  // namespace temper::device
