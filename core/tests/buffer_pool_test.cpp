#include "exactmeans/base/buffer_pool.hpp"

#include <utility>
#include <vector>

#include "check.hpp"

using namespace exactmeans;

TEST(what_is_given_back_is_taken_again) {
    BufferPool spares;
    CHECK(spares.take<std::vector<int>>().empty());
    std::vector<int> used(1000, 7);
    const int* const where = used.data();
    spares.give(std::move(used));
    std::vector<int> again = spares.take<std::vector<int>>();
    CHECK(again.data() == where);
    // Whoever comes while it is in use gets another.
    CHECK(spares.take<std::vector<int>>().empty());
}

TEST(of_its_kind_only) {
    BufferPool spares;
    spares.give(std::vector<int>(1000, 7));
    CHECK(spares.take<std::vector<float>>().empty());
    CHECK(spares.take<std::vector<int>>().empty());  // one thing is kept at a time
}
