#include "exactmeans/assign/sparse/moving.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Moving<float>>;
template class AlgorithmAssigner<Moving<double>>;

}  // namespace exactmeans
