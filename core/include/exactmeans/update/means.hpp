// The update step of an iteration: moves every centre to the mean of its cluster. Mean, movement,
// norm and explained scatter of a centre are computed together, while the centre is in cache: all
// centres together would not fit.
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

// Caches the scatter that each cluster explains and computes it again only for clusters that
// changed. Sums and centres are both dense or both sparse. Scatter is about `origin`, or about 0 if
// sums and centres are sparse.
template <class R>
class CentreUpdate {
public:
    explicit CentreUpdate(Size k) : explained_(std::size_t(k)), known_(std::size_t(k), 0) {}

    // Computes the explained scatter before rows are relocated to empty clusters; run() then keeps
    // it.
    void observe(const Sums& sums, const Centres<R>& centroids, const double* origin) {
        for (Size j = 0; j < sums.k(); ++j) measure_explained(j, sums, centroids, origin);
        observed_ = true;
    }

    // Moves the centres to the means. The centre of a cluster without weight moves to that of the
    // heaviest cluster, as in scikit-learn.
    Movement run(Sums& sums, Centres<R>& centroids, const double* origin, const Threads& threads) {
        // Ends with this call, also if an exception ends it.
        const struct Observation {
            bool& observed;
            ~Observation() { observed = false; }
        } observation{observed_};
        std::vector<Size> empty;
        for (Size j = 0; j < sums.k(); ++j)
            if (!(sums.weight(j) > 0)) empty.push_back(j);
        const Movement movement = move(sums, centroids, origin, empty, sums.heaviest(), threads);
        for (std::size_t j = 0; j < known_.size(); ++j)
            if (movement.distance[j] > 0) known_[j] = 0;
        sums.clear_touched();
        return movement;
    }

    // The scatter about the origin that clusters and centres explained before the last run.
    double explained() const {
        double sum = 0;
        for (const double part : explained_) sum += part;
        return sum;
    }

private:
    static bool is_unmoved(Size j, const Sums& sums) {
        return !sums.touched(j) || !(sums.weight(j) > 0);
    }

    // The new values of centre j in `buffer`; null if the centre does not move.
    template <class Buffer>
    Buffer* new_values(Size j, const Sums& sums, const Centres<R>& centroids, const double* origin,
                       Buffer* buffer) {
        if (!observed_) measure_explained(j, sums, centroids, origin);
        if (is_unmoved(j, sums)) return nullptr;
        if (is_spherical(centroids.frame().metric))
            return mean_direction(j, sums, buffer) ? buffer : nullptr;
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
                [&](Size j, R* buffer) { return new_values(j, sums, centroids, origin, buffer); },
                empty, leader, threads);
        if (!is_spherical(centroids.frame().metric) &&
            sums.grid().bins() <= SparseCentreUpdate<R>::most_bins)
            return move_sparse(sums, centroids, empty, leader, threads);
        return centroids.move(
            [&](Size j, SparseVector<R>& buffer) {
                return new_values(j, sums, centroids, origin, &buffer);
            },
            empty, leader, threads);
    }
    // The same for sparse centres, with one pass over the values of each.
    Movement move_sparse(const Sums& sums, Centres<R>& centroids, const std::vector<Size>& empty,
                         Size leader, const Threads& threads) {
        sparse_updates_.resize(std::max(sparse_updates_.size(), std::size_t(threads.n_jobs)));
        const auto update = [&](Size j, SparseVector<R>& centre,
                                int worker) -> std::optional<Displacement> {
            if (is_unmoved(j, sums)) {
                if (!observed_) measure_explained(j, sums, centroids, nullptr);
                return {};
            }
            double* const explained = observed_ ? nullptr : &explained_[std::size_t(j)];
            if (explained) known_[std::size_t(j)] = 1;
            return sparse_updates_[std::size_t(worker)].run(j, sums, centre,
                                                            centroids.frame().exponent, explained);
        };
        return centroids.move_in_place(update, empty, leader, threads);
    }

    // The direction of the mean of cluster j; false if the mean is too short to have one.
    static bool mean_direction(Size j, const Sums& sums, R* out) {
        std::vector<double> mean(static_cast<std::size_t>(sums.d()));
        sums.mean(j, mean.data());
        return direction(mean.data(), sums.d(), minimum_mean_length, out);
    }
    static bool mean_direction(Size j, const Sums& sums, SparseVector<R>* out) {
        SparseVector<double> mean;
        sums.mean(j, mean);
        out->feature = mean.feature;
        out->value.resize(mean.value.size());
        return direction(mean.value.data(), mean.size(), minimum_mean_length, out->value.data());
    }

    void measure_explained(Size j, const Sums& sums, const Centres<R>& centroids,
                           const double* origin) {
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
    std::vector<SparseCentreUpdate<R>> sparse_updates_;  // one per worker
};

}  // namespace exactmeans
