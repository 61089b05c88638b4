#include "exactmeans/assign/kdtree.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Kdtree<float>>;
template class AlgorithmAssigner<Kdtree<double>>;

}  // namespace exactmeans
