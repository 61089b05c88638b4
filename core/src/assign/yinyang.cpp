#include "exactmeans/assign/yinyang.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Yinyang<float>>;
template class AlgorithmAssigner<Yinyang<double>>;

}  // namespace exactmeans
