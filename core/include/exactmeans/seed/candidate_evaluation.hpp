// What a trial of candidates has found: by how much each would lower the total, and which rows it
// would take, so that the winner need not be measured again. Rows are kept within a fixed budget;
// a candidate that takes too many is measured once more if it wins.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/seed/sampling_weights.hpp"

namespace exactmeans {

class CandidateEvaluation {
public:
    struct Nearer {
        Size row;
        double d2;
    };

    void set_budget(std::size_t bytes) { budget_ = bytes; }

    void begin(Size candidates, int workers) {
        workers_.resize(std::size_t(workers));
        const std::size_t lists = workers_.size() * std::size_t(std::max<Size>(1, candidates));
        most_kept_ = budget_ / sizeof(Nearer) / lists;
        for (Worker& worker : workers_) {
            worker.gain.assign(std::size_t(candidates), SamplingWeight{});
            worker.forgot.assign(std::size_t(candidates), 0);
            worker.nearer.resize(std::size_t(candidates));
            for (auto& list : worker.nearer) list.clear();
        }
    }

    // A worker writes to its own lists only.
    void note(int worker_number, Size candidate, const Nearer& row, const SamplingWeight& gain) {
        Worker& worker = workers_[std::size_t(worker_number)];
        worker.gain[std::size_t(candidate)].add(gain);
        auto& nearer = worker.nearer[std::size_t(candidate)];
        if (nearer.size() < most_kept_)
            nearer.push_back(row);
        else
            worker.forgot[std::size_t(candidate)] = 1;
    }

    SamplingWeight gain(Size candidate) const {
        SamplingWeight sum;
        for (const Worker& worker : workers_) sum.add(worker.gain[std::size_t(candidate)]);
        return sum;
    }
    bool forgot(Size candidate) const {
        return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
            return worker.forgot[std::size_t(candidate)] != 0;
        });
    }
    std::size_t kept(Size candidate) const {
        std::size_t sum = 0;
        for (const Worker& worker : workers_) sum += worker.nearer[std::size_t(candidate)].size();
        return sum;
    }
    Size workers() const { return Size(workers_.size()); }
    const std::vector<Nearer>& nearer(Size worker, Size candidate) const {
        return workers_[std::size_t(worker)].nearer[std::size_t(candidate)];
    }

private:
    struct alignas(64) Worker {
        std::vector<SamplingWeight> gain;
        std::vector<std::vector<Nearer>> nearer;
        std::vector<char> forgot;
    };

    std::size_t budget_ = std::size_t(64) << 20, most_kept_ = 0;
    std::vector<Worker> workers_;
};

}  // namespace exactmeans
