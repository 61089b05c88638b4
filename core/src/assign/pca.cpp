#include "exactmeans/assign/pca.hpp"

namespace exactmeans {

template class AlgorithmAssigner<Pca<float>>;
template class AlgorithmAssigner<Pca<double>>;

}  // namespace exactmeans
