// The evaluation of candidates in greedy k-means++: how much each would lower the total sampling
// weight, and which rows are nearer to it than to their seed. These rows are stored, so that the
// best candidate can be accepted without computing its distances again. If they exceed a memory
// budget, the distances are computed again.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/seed/sampling_weights.hpp"

namespace exactmeans {

class CandidateEvaluation {
public:
    struct Nearer {
        Size row;
        double d2;
    };

    // The most bytes of stored rows.
    void set_budget(std::size_t bytes) { budget_ = bytes; }

    void begin(Size candidates, int workers) {
        workers_.resize(std::size_t(workers));
        const std::size_t lists = workers_.size() * std::size_t(std::max<Size>(1, candidates));
        most_stored_ = budget_ / sizeof(Nearer) / lists;
        for (Worker& worker : workers_) {
            worker.gain.assign(std::size_t(candidates), SamplingWeight{});
            worker.incomplete.assign(std::size_t(candidates), 0);
            worker.nearer.resize(std::size_t(candidates));
            for (auto& list : worker.nearer) list.clear();
        }
    }

    // Records a row that is nearer to the candidate. Workers write to separate lists.
    void record(int worker_number, Size candidate, const Nearer& row, const SamplingWeight& gain) {
        Worker& worker = workers_[std::size_t(worker_number)];
        worker.gain[std::size_t(candidate)].add(gain);
        auto& nearer = worker.nearer[std::size_t(candidate)];
        if (nearer.size() < most_stored_)
            nearer.push_back(row);
        else
            worker.incomplete[std::size_t(candidate)] = 1;
    }

    SamplingWeight gain(Size candidate) const {
        SamplingWeight sum;
        for (const Worker& worker : workers_) sum.add(worker.gain[std::size_t(candidate)]);
        return sum;
    }
    // True if the budget did not suffice for all rows of the candidate.
    bool incomplete(Size candidate) const {
        return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
            return worker.incomplete[std::size_t(candidate)] != 0;
        });
    }
    std::size_t stored(Size candidate) const {
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
        std::vector<char> incomplete;
    };

    std::size_t budget_ = std::size_t(cost::evaluation_bytes), most_stored_ = 0;
    std::vector<Worker> workers_;
};

}  // namespace exactmeans
