// The cost of a row at a child, to which the price of the child is added.
#pragma once

#include <cmath>

#include "exactmeans/numerics/frame.hpp"

namespace exactmeans {

// The cost of row i from its score, without a term that depends on the row alone: on the scale of
// the frame, because costs in units of the data may leave the range of float64. For directions,
// minus the cosine.
template <class Rows>
double child_cost(const Rows& x, Size i, const Frame<typename Rows::Real>& frame,
                  typename Rows::Real score) {
    if (!x.norms) return double(score);
    return x.norms[i] > 0 ? std::ldexp(double(score), -frame.packing) / x.norms[i] : 0.0;
}

}  // namespace exactmeans
