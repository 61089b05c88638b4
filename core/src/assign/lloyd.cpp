#include "exactmeans/assign/lloyd.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Lloyd<float>>;
template class AlgorithmAssigner<Lloyd<double>>;

}  // namespace exactmeans
