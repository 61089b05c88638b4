// The second half of an iteration: every centre goes to the mean of its cluster. Mean, movement,
// norm and the explained scatter of a centre are computed in one visit, because all centres
// together do not fit the cache.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "exactmeans/centres/centres.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "exactmeans/update/cluster_sums.hpp"
#include "exactmeans/update/sparse_centre_update.hpp"

namespace exactmeans {

// Remembers what each cluster explained, so that one that neither changed nor moved costs nothing.
// Sums and centres are both dense or both sparse; sparse ones are measured about 0.
template <class R>
class Advance {
public:
    explicit Advance(Size k) : explained_(std::size_t(k)), known_(std::size_t(k), 0) {}

    // Takes note of what the clusters explain now; for when rows are about to be lent to empty
    // ones.
    void observe(const Sums& sums, const Centres<R>& centroids, const double* origin) {
        for (Size j = 0; j < sums.k(); ++j) look(j, sums, centroids, origin);
        observed_ = true;
    }

    // Clusters without weight get the place of the heaviest one, as in scikit-learn.
    Movement run(Sums& sums, Centres<R>& centroids, const double* origin, const Threads& threads) {
        std::vector<Size> empty;
        for (Size j = 0; j < sums.k(); ++j)
            if (!(sums.weight(j) > 0)) empty.push_back(j);
        const Movement movement = move(sums, centroids, origin, empty, sums.heaviest(), threads);
        for (std::size_t j = 0; j < known_.size(); ++j)
            if (movement.distance[j] > 0) known_[j] = 0;
        sums.settle();
        observed_ = false;
        return movement;
    }

    // Of the scatter about the origin, by the clusters and centres before the last run.
    double explained() const {
        double sum = 0;
        for (const double part : explained_) sum += part;
        return sum;
    }

private:
    static bool stays(Size j, const Sums& sums) {
        return !sums.touched(j) || !(sums.weight(j) > 0);
    }

    // Where centre j goes; null if it stays.
    template <class Buffer>
    Buffer* place(Size j, const Sums& sums, const Centres<R>& centroids, const double* origin,
                  Buffer* buffer) {
        if (!observed_) look(j, sums, centroids, origin);
        if (stays(j, sums)) return nullptr;
        if (is_spherical(centroids.frame().metric))
            return directed(j, sums, buffer) ? buffer : nullptr;
        if constexpr (std::is_same_v<Buffer, R>)
            sums.mean(j, buffer);
        else
            sums.mean(j, *buffer);
        return buffer;
    }

    Movement move(const Sums& sums, Centres<R>& centroids, const double* origin,
                  const std::vector<Size>& empty, Size leader, const Threads& threads) {
        if (!centroids.sparse())
            return centroids.move(
                [&](Size j, R* buffer) { return place(j, sums, centroids, origin, buffer); }, empty,
                leader, threads);
        if (!is_spherical(centroids.frame().metric) &&
            sums.grid().words() <= SparseCentreUpdate<R>::most_words)
            return pass(sums, centroids, empty, leader, threads);
        return centroids.move(
            [&](Size j, SparseVector<R>& buffer) {
                return place(j, sums, centroids, origin, &buffer);
            },
            empty, leader, threads);
    }
    // The same in a single visit to each centre.
    Movement pass(const Sums& sums, Centres<R>& centroids, const std::vector<Size>& empty,
                  Size leader, const Threads& threads) {
        passages_.resize(std::max(passages_.size(), std::size_t(threads.n_jobs)));
        const auto go = [&](Size j, SparseVector<R>& centre,
                            int worker) -> std::optional<Displacement> {
            if (stays(j, sums)) {
                if (!observed_) look(j, sums, centroids, nullptr);
                return {};
            }
            double* const explained = observed_ ? nullptr : &explained_[std::size_t(j)];
            if (explained) known_[std::size_t(j)] = 1;
            return passages_[std::size_t(worker)].run(j, sums, centre, centroids.frame().exponent,
                                                      explained);
        };
        return centroids.pass(go, empty, leader, threads);
    }

    // The direction of cluster j's mean; false if it has none, so that the centre stays.
    static bool directed(Size j, const Sums& sums, R* out) {
        std::vector<double> mean(static_cast<std::size_t>(sums.d()));
        sums.mean(j, mean.data());
        return direction(mean.data(), sums.d(), minimum_mean_length, out);
    }
    static bool directed(Size j, const Sums& sums, SparseVector<R>* out) {
        SparseVector<double> mean;
        sums.mean(j, mean);
        out->feature = mean.feature;
        out->value.resize(mean.value.size());
        return direction(mean.value.data(), mean.size(), minimum_mean_length, out->value.data());
    }

    void look(Size j, const Sums& sums, const Centres<R>& centroids, const double* origin) {
        const std::size_t at = std::size_t(j);
        if (known_[at] && !sums.touched(j)) return;
        const int exponent = centroids.frame().exponent;
        explained_[at] = centroids.sparse()
                             ? sums.explained(j, centroids.sparse_master(j), exponent)
                             : sums.explained(j, centroids.master(j), origin, exponent);
        known_[at] = 1;
    }

    bool observed_ = false;
    std::vector<double> explained_;
    std::vector<char> known_;
    std::vector<SparseCentreUpdate<R>> passages_;  // one per worker
};

}  // namespace exactmeans
