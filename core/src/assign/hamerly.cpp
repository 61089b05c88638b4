#include "exactmeans/assign/hamerly.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Hamerly<float>>;
template class AlgorithmAssigner<Hamerly<double>>;

}  // namespace exactmeans
