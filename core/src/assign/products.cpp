#include "exactmeans/assign/sparse/products.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Products<float>>;
template class AlgorithmAssigner<Products<double>>;

}  // namespace exactmeans
