// The metrics: the term of the objective for one row, and its optimal centre.
//
//   euclidean   |x - c|^2            the mean
//   cosine      1 - cos              the direction of the mean of unit rows
//   angular     angle^2              the geodesic (Karcher) mean
//   manhattan   sum of |x_f - c_f|   the median of each feature
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace exactmeans {

enum class Metric { euclidean, cosine, angular, manhattan };

inline Metric metric_of(std::string_view name) {
    if (name == "euclidean") return Metric::euclidean;
    if (name == "cosine") return Metric::cosine;
    if (name == "angular") return Metric::angular;
    if (name == "manhattan") return Metric::manhattan;
    throw std::invalid_argument("unknown metric " + std::string(name));
}

// Spherical metrics depend only on the directions of rows.
inline bool is_spherical(Metric metric) {
    return metric == Metric::cosine || metric == Metric::angular;
}

// Is the score of a row and a centre the offset of the centre minus their dot product? The error
// bounds of filters and of reordered scores hold for such scores only.
inline bool scores_are_products(Metric metric) {
    return metric == Metric::euclidean || is_spherical(metric);
}

}  // namespace exactmeans
