// What the training kernels between the products promise on a GPU beyond their formulas: the same bits from
// run to run and at any place of a pack, those of the CPU where every step is one IEEE operation, and weights
// that the next kernel reads ahead of its turn.

#include <array>

#include "src/ops/embedding.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"
#include "src/ops/norm.h"
#include "src/ops/optimizer.h"
#include "src/ops/rope.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

/// Tensors for one run of an op, filled with the same numbers every time.
class Filled {
 public:
  explicit Filled(Ctx& c) : c_(c), scope_(c.scratch) {}
  Tensor normal(std::initializer_list<int64_t> shape, DType dtype, double mean = 0) {
    const Tensor t = c_.scratch.make(shape, dtype);
    c_.lane.wait();
    block_.fill(c_.device, t, 1, mean, ++seed_);
    return t;
  }
  CTensor ids(int64_t count, int32_t below) {
    const std::vector<int32_t> list = random_ids(count, below, 9);
    return to_device(c_, view_of(list.data(), {count}));
  }

 private:
  Ctx& c_;
  ArenaScope scope_;
  NormalBlock block_;
  int64_t seed_ = 0;
};

using Bytes = std::vector<std::vector<char>>;

/// Runs an op several times on the same inputs: what it wrote is the same.
void expect_repeats(const char* name, const std::function<std::vector<Tensor>(Ctx&, Filled&)>& op) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const auto run = [&] {
    Filled inputs(c);
    Bytes all;
    for (const Tensor& t : op(c, inputs)) all.push_back(bytes_of(c, t));
    return all;
  };
  const Bytes first = run();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(), first) << name;
}

constexpr int64_t T = 5000;

TEST(Repeats, Norms) {
  for (int64_t width : {1024, 4096})
    expect_repeats("rmsnorm_backward", [&](Ctx& c, Filled& in) {
      const Tensor dx = in.normal({T, width}, DType::bf16), past = in.normal({T, width}, DType::bf16),
                   x = in.normal({T, width}, DType::bf16), w = in.normal({width}, DType::bf16, 1),
                   rstd = in.normal({T}, DType::f32, 1), dw = in.normal({width}, DType::f32);
      rmsnorm_backward(c, dx, dw, dx, past, x, w, rstd);
      return std::vector{dx, dw};
    });
  expect_repeats("head_norm_rope_backward", [](Ctx& c, Filled& in) {
    const AttentionShape shape{16, 8, 128};
    const Tensor dx = in.normal({T, shape.qkv_width()}, DType::bf16),
                 x = in.normal({T, shape.qkv_width()}, DType::bf16), wq = in.normal({128}, DType::bf16, 1),
                 wk = in.normal({128}, DType::bf16, 1), rstd = in.normal({T, 24}, DType::f32, 1),
                 dwq = in.normal({128}, DType::f32), dwk = in.normal({128}, DType::f32),
                 cosine = in.normal({100, 64}, DType::f32), sine = in.normal({100, 64}, DType::f32);
    head_norm_rope_backward(c, dx, dwq, dwk, dx, x, wq, wk, rstd, {in.ids(T, 100), cosine, sine}, shape);
    return std::vector{dx, dwq, dwk};
  });
}

TEST(Repeats, EmbeddingAndSquares) {
  expect_repeats("embedding_backward", [](Ctx& c, Filled& in) {
    const Tensor dy = in.normal({T, 1024}, DType::bf16), dw = in.normal({500, 1024}, DType::f32);
    embedding_backward(c, dw, dy, in.ids(T, 500), 3);
    return std::vector{dw};
  });
  expect_repeats("sum_of_squares", [](Ctx& c, Filled& in) {
    const Tensor x = in.normal({30'000'001}, DType::f32), sum = c.scratch.make({1}, DType::f64);
    device::fill(c.lane, sum.raw(), 0, sum.bytes());
    sum_of_squares(c, sum, x);
    return std::vector{sum};
  });
}

/// A row of dx at another place of another pack, in both kernels and all their block cuts.
TEST(ActivationGradient, IsOfItsRowAlone) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  constexpr int64_t kWidth = 4096, kFirst = 4321;
  Filled in(c);
  const Tensor dy = in.normal({T, kWidth}, DType::bf16), x = in.normal({T, kWidth}, DType::bf16),
               w = in.normal({kWidth}, DType::bf16, 1), rstd = in.normal({T}, DType::f32, 1),
               dw = in.normal({kWidth}, DType::f32), all = in.normal({T, kWidth}, DType::bf16),
               some = in.normal({T, kWidth}, DType::bf16);
  rmsnorm_backward(c, all, dw, dy, {}, x, w, rstd);
  for (int64_t count : {1, 7, 300}) {
    const auto part = [&](const Tensor& t) { return rows(t, kFirst, kFirst + count); };
    rmsnorm_backward(c, rows(some, 0, count), dw, part(dy), {}, part(x), w, part(rstd));
    EXPECT_EQ(bytes_of(c, rows(some, 0, count)), bytes_of(c, part(all))) << count << " rows";
  }
}

/// Weights, masters beside them (else f32, not used) and moments, as they are held.
struct UpdateTypes {
  DType weight, master, moments;
};

/// Weight, master and moments after some updates of one device; what is not the weight itself may lie in host
/// memory.
template <class Grads>
Many updates(Device device, const UpdateTypes& types, int64_t n, const Grads& grads, bool in_host = false) {
  const DType dtype = types.weight;
  TestCtx ctx(2, device);
  Ctx& c = ctx;
  const Values start = round_to(normal_values(n, 1, 0.05), dtype);
  const Values zeros(start.size());
  TestTensor weight(c, start, dtype, {n}),
      master(c, types.master == DType::u16 ? zeros : start, types.master, {n}),
      m(c, zeros, types.moments, {n}), v(c, zeros, types.moments, {n});
  const Tensor own = dtype == DType::bf16 ? static_cast<Tensor>(master) : static_cast<Tensor>(weight);
  const std::array<Tensor, 3> near{own, m, v};
  std::array<Tensor, 3> state = near;
  Arena far;
  if (in_host)
    for (Tensor& t : state)
      if (t.data != static_cast<Tensor>(weight).data) t = far.like(t);
  if (in_host) far.pin();
  for (size_t i = 0; i < state.size(); ++i)
    if (state[i].data != near[i].data)
      device::copy_from_device(c.lane, state[i].raw(), near[i].data, near[i].bytes());
  const std::vector<FlatRange> decays{{5, n / 2}, {n / 2 + 9, n - 3}};
  for (int64_t count = 1; count <= 3; ++count) {
    TestTensor grad(c, grads(count), DType::f32, {n});
    adamw_step(c, weight, state[0], state[1], state[2], grad, decays,
               {.lr = 3e-4,
                .weight_decay = 0.1,
                .grad_scale = 0.37,
                .count = count,
                .seed = 0xfedcba9876543210u,
                .first_element = (int64_t{3} << 34) + 16});
  }
  for (size_t i = 0; i < state.size(); ++i)
    if (state[i].data != near[i].data)
      device::copy_to_device(c.lane, near[i].raw(), state[i].data, near[i].bytes());
  c.lane.wait();
  return {weight.values(), master.values(), m.values(), v.values()};
}

/// Every step of an update is one rounded IEEE operation on either device, of subnormal numbers too, and the
/// random words are the same.
TEST(Adamw, HasTheBitsOfTheCpu) {
  constexpr int64_t n = 100'003;
  const auto grads = [](int64_t count) {
    Values g = normal_values(n, static_cast<uint64_t>(count) + 10);
    for (size_t i = 0; i < g.size(); ++i) g[i] *= std::pow(10.0, -static_cast<double>(i % 46));
    return g;
  };
  for (const UpdateTypes& types : {UpdateTypes{DType::f32, DType::f32, DType::f32},
                                   {DType::f32, DType::f32, DType::bf16},
                                   {DType::bf16, DType::f32, DType::f32},
                                   {DType::bf16, DType::f32, DType::bf16},
                                   {DType::bf16, DType::u16, DType::f32},
                                   {DType::bf16, DType::u16, DType::bf16}}) {
    const Many want = updates(Device::cpu, types, n, grads);
    for (const bool in_host : {false, true}) {
      const Many got = updates(Device::cuda, types, n, grads, in_host);
      const char* names[] = {"weight", "master", "m", "v"};
      for (size_t k = 0; k < want.size(); ++k) expect_same_bits(names[k], got[k], want[k]);
    }
  }
}

/// A product right behind an update reads weights ahead of its turn, but not those from before it.
TEST(Adamw, TheNextProductSeesNewWeights) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  constexpr int64_t kOut = 4096, kIn = 1024, n = kOut * kIn;
  Filled in(c);
  const Tensor weight = in.normal({kOut, kIn}, DType::bf16), master = in.normal({n}, DType::f32),
               m = in.normal({n}, DType::f32), v = in.normal({n}, DType::f32, 9),
               grad = in.normal({n}, DType::f32), x = in.normal({1, kIn}, DType::bf16),
               early = in.normal({1, kOut}, DType::bf16), late = in.normal({1, kOut}, DType::bf16);
  const Tensor flat = make_tensor(weight.raw(), DType::bf16, {n});
  linear_forward(c, early, x, weight, {});  // the self-test of the shape is behind us
  for (int64_t count = 1; count <= 5; ++count) {
    adamw_step(c, flat, master, m, v, grad, {}, {.lr = 0.5, .count = count});
    linear_forward(c, early, x, weight, {});
    c.lane.wait();
    linear_forward(c, late, x, weight, {});
    EXPECT_EQ(bytes_of(c, early), bytes_of(c, late)) << "update " << count;
    round_master(c, flat, m);
    linear_forward(c, early, x, weight, {});
    c.lane.wait();
    linear_forward(c, late, x, weight, {});
    EXPECT_EQ(bytes_of(c, early), bytes_of(c, late)) << "rounded after update " << count;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
