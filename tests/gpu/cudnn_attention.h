#pragma once
// cuDNN's fused causal attention through its graph interface: the second oracle of the GPU tests, and the
// peer of the bench. The library is opened at run time; without it (or its header at build time) there is
// none.

#include <dlfcn.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "src/core/cuda.h"
#include "src/core/device.h"
#include "src/ops/attention.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

namespace temper {

/// The functions of libcudnn that are used, and a handle on a lane.
class Cudnn {
 public:
  /// Null where the library is missing.
  static std::shared_ptr<Cudnn> open(const Lane& lane) {
    void* library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    return library == nullptr ? nullptr : std::shared_ptr<Cudnn>(new Cudnn(library, lane));
  }
  ~Cudnn() { (void)destroy_(handle); }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  void check(cudnnStatus_t status, const char* call) const {
    CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN {}: {}", call, error_string_(status));
  }

  decltype(&::cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&::cudnnBackendSetAttribute) set_attribute;
  decltype(&::cudnnBackendGetAttribute) get_attribute;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnBackendExecute) execute;
  decltype(&::cudnnGetVersion) version;
  cudnnHandle_t handle = nullptr;

 private:
  Cudnn(void* library, const Lane& lane) {
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      CHECK(function != nullptr, "libcudnn has no {}", name);
    };
    get(create_descriptor, "cudnnBackendCreateDescriptor");
    get(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    get(set_attribute, "cudnnBackendSetAttribute");
    get(get_attribute, "cudnnBackendGetAttribute");
    get(finalize, "cudnnBackendFinalize");
    get(execute, "cudnnBackendExecute");
    get(version, "cudnnGetVersion");
    get(error_string_, "cudnnGetErrorString");
    get(destroy_, "cudnnDestroy");
    decltype(&::cudnnCreate) create;
    decltype(&::cudnnSetStream) set_stream;
    get(create, "cudnnCreate");
    get(set_stream, "cudnnSetStream");
    check(create(&handle), "create");
    check(set_stream(handle, stream_of(lane)), "stream");
  }
  decltype(&::cudnnGetErrorString) error_string_;
  decltype(&::cudnnDestroy) destroy_;
};

/// One object of the graph interface.
class CudnnObject {
 public:
  CudnnObject(const Cudnn& library, cudnnBackendDescriptorType_t type) : library_(library) {
    library_.check(library_.create_descriptor(type, &raw_), "descriptor");
  }
  ~CudnnObject() { (void)library_.destroy_descriptor(raw_); }
  CudnnObject(const CudnnObject&) = delete;
  CudnnObject& operator=(const CudnnObject&) = delete;

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    library_.check(
        library_.set_attribute(raw_, name, type, static_cast<int64_t>(values.size()), values.data()),
        "attribute");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    library_.check(library_.set_attribute(raw_, name, type, 1, &value), "attribute");
  }
  void set(cudnnBackendAttributeName_t name, const CudnnObject& object) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, object.raw_);
  }
  bool try_finalize() { return library_.finalize(raw_) == CUDNN_STATUS_SUCCESS; }
  void finalize() { library_.check(library_.finalize(raw_), "finalize"); }
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  const Cudnn& library_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// out and the log-sum-exp of `batch` sequences of `length` rows, packed as attention_varlen_forward has
/// them.
class CudnnAttention {
 public:
  CudnnAttention(std::shared_ptr<Cudnn> library, int64_t batch, int64_t length, const AttentionShape& shape,
                 double scale)
      : library_(std::move(library)),
        b_(batch),
        n_(length),
        shape_(shape),
        scale_(static_cast<float>(scale)) {
    add_graph();
    choose_plan();
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// qkv [batch * length, (Hq+2Hkv)*dh], out [batch * length, Hq*dh], lse [batch, Hq, length] fp32.
  void run(const void* qkv, void* out, void* lse) const {
    const auto* base = static_cast<const char*>(qkv);
    const int64_t q = 2 * shape_.q_width(), kv = 2 * shape_.kv_width();
    CudnnObject pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
             std::vector<int64_t>{kQ, kK, kV, kOut, kLse, kScale, kLowest});
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::vector<const void*>{base, base + q, base + q + kv, out, lse, &scale_, &lowest_});
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace_);
    pack.finalize();
    library_->check(library_->execute(library_->handle, plan_->raw(), pack.raw()), "execute");
  }

 private:
  enum Id : int64_t { kQ = 1, kK, kV, kOut, kLse, kScale, kLowest, kFirstVirtual };
  using Sizes = std::vector<int64_t>;

  const CudnnObject& make(cudnnBackendDescriptorType_t type) {
    objects_.push_back(std::make_unique<CudnnObject>(*library_, type));
    return *objects_.back();
  }
  CudnnObject& last() { return *objects_.back(); }

  const CudnnObject& tensor(int64_t id, const Sizes& sizes, const Sizes& strides, cudnnDataType_t type) {
    constexpr int64_t kAlignment = 16;
    make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    last().set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    last().set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    last().set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes);
    last().set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    last().set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
    last().set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, id >= kFirstVirtual);
    last().set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, id == kScale || id == kLowest);
    last().finalize();
    return last();
  }
  /// An intermediate result: of every score, or of every row.
  const CudnnObject& scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const int64_t h = shape_.q_heads;
    return tensor(next_virtual_++, {b_, h, n_, n_}, {h * n_ * n_, n_ * n_, n_, 1}, type);
  }
  const CudnnObject& row_values(int64_t id = 0) {
    const int64_t h = shape_.q_heads;
    return tensor(id == 0 ? next_virtual_++ : id, {b_, h, n_, 1}, {h * n_, n_, 1, 1}, CUDNN_DATA_FLOAT);
  }
  const CudnnObject& number(int64_t id) { return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT); }

  void add_matmul(const CudnnObject& a, const CudnnObject& b, const CudnnObject& c) {
    make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    last().set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    last().finalize();
    const CudnnObject& how = last();
    make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    last().set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    last().set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    last().set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    last().set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish_operation();
  }
  void add_reduction(cudnnReduceTensorOp_t mode, const CudnnObject& x, const CudnnObject& y) {
    make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    last().set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
    last().set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    last().finalize();
    const CudnnObject& how = last();
    make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    last().set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    last().set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    last().set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_operation();
  }
  struct Inputs {
    const CudnnObject *x, *b = nullptr, *t = nullptr;
  };
  void add_pointwise(cudnnPointwiseMode_t mode, const Inputs& in, const CudnnObject& y, int64_t axis = -1,
                     cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
    make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    last().set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    last().set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
    if (axis >= 0) last().set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    last().finalize();
    const CudnnObject& how = last();
    make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    last().set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    last().set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *in.x);
    if (in.b != nullptr) last().set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *in.b);
    if (in.t != nullptr) last().set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *in.t);
    last().set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_operation();
  }
  void finish_operation() {
    last().finalize();
    operations_.push_back(last().raw());
  }

  /// softmax(scale * Q K^T where row >= column) V, in the steps that cuDNN knows to fuse.
  void add_graph() {
    const int64_t W = shape_.qkv_width(), D = shape_.head_dim, h = shape_.q_heads, g = shape_.kv_heads;
    const auto bf = CUDNN_DATA_BFLOAT16;
    const auto &q = tensor(kQ, {b_, h, n_, D}, {n_ * W, D, W, 1}, bf),
               &k = tensor(kK, {b_, g, D, n_}, {n_ * W, D, 1, W}, bf),
               &v = tensor(kV, {b_, g, n_, D}, {n_ * W, D, W, 1}, bf),
               &out = tensor(kOut, {b_, h, n_, D}, {n_ * h * D, D, h * D, 1}, bf);
    const auto &lse = row_values(kLse), &scale = number(kScale), &lowest = number(kLowest);

    const auto &s = scores(), &scaled = scores(), &masked = scores();
    add_matmul(q, k, s);
    add_pointwise(CUDNN_POINTWISE_MUL, {&s, &scale}, scaled);
    const auto &row = scores(CUDNN_DATA_INT32), &column = scores(CUDNN_DATA_INT32),
               &seen = scores(CUDNN_DATA_BOOLEAN);
    add_pointwise(CUDNN_POINTWISE_GEN_INDEX, {&scaled}, row, 2);
    add_pointwise(CUDNN_POINTWISE_GEN_INDEX, {&scaled}, column, 3);
    add_pointwise(CUDNN_POINTWISE_CMP_GE, {&row, &column}, seen, -1, CUDNN_DATA_BOOLEAN);
    add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, {&scaled, &lowest, &seen}, masked);

    const auto &most = row_values(), &shifted = scores(), &powers = scores(), &sum = row_values(),
               &log = row_values(), &p = scores(bf);
    add_reduction(CUDNN_REDUCE_TENSOR_MAX, masked, most);
    add_pointwise(CUDNN_POINTWISE_SUB, {&masked, &most}, shifted);
    add_pointwise(CUDNN_POINTWISE_EXP, {&shifted}, powers);
    add_reduction(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    add_pointwise(CUDNN_POINTWISE_LOG, {&sum}, log);
    add_pointwise(CUDNN_POINTWISE_ADD, {&most, &log}, lse);
    add_pointwise(CUDNN_POINTWISE_DIV, {&powers, &sum}, p);
    add_matmul(p, v, out);
  }

  /// The first engine that the library proposes and that takes the graph.
  void choose_plan() {
    constexpr int64_t kAsked = 8;
    CudnnObject graph(*library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, library_->handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_);
    graph.finalize();
    CudnnObject heuristic(*library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    heuristic.finalize();
    std::vector<std::unique_ptr<CudnnObject>> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < kAsked; ++i) {
      configs.push_back(std::make_unique<CudnnObject>(*library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      raw.push_back(configs.back()->raw());
    }
    int64_t found = 0;
    library_->check(library_->get_attribute(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, kAsked, &found, raw.data()),
                    "engines");
    for (int64_t i = 0; i < found && !plan_; ++i) {
      plan_ = std::make_unique<CudnnObject>(*library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan_->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, library_->handle);
      plan_->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configs[static_cast<size_t>(i)]);
      if (!plan_->try_finalize()) plan_.reset();
    }
    CHECK(plan_ != nullptr, "none of cuDNN's {} engines takes the graph", found);
    int64_t bytes = 0, one = 0;
    library_->check(library_->get_attribute(plan_->raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &one, &bytes),
                    "workspace");
    workspace_ = memory_.allocate(bytes);
  }

  std::shared_ptr<Cudnn> library_;
  int64_t b_, n_;
  AttentionShape shape_;
  float scale_, lowest_ = std::numeric_limits<float>::lowest();
  int64_t next_virtual_ = kFirstVirtual;
  std::vector<std::unique_ptr<CudnnObject>> objects_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::unique_ptr<CudnnObject> plan_;
  Arena memory_{Device::cuda};
  void* workspace_ = nullptr;
};

}  // namespace temper

#else

namespace temper {
struct Cudnn {
  static std::shared_ptr<Cudnn> open(const Lane&) { return nullptr; }
  size_t (*version)() = nullptr;
};
struct CudnnAttention {
  CudnnAttention(const std::shared_ptr<Cudnn>&, int64_t, int64_t, const AttentionShape&, double) {}
  void run(const void*, void*, void*) const {}
};
}  // namespace temper

#endif
