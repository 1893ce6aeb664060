#pragma once
// How long products take, as plain numbers (ops/product_times.h).

namespace temper {

/// Seconds of one product.
struct ProductTime {
  double ours = 0;     // by the kernels that the program uses
  double fastest = 0;  // by the fastest of the vendor's library, in whatever order it sums
};

/// The products of one linear layer.
struct LinearTimes {
  ProductTime forward, input_gradient, weight_gradient;
};

}  // namespace temper
