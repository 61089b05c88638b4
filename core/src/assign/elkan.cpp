#include "exactmeans/assign/elkan.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Elkan<float>>;
template class AlgorithmAssigner<Elkan<double>>;

}  // namespace exactmeans
