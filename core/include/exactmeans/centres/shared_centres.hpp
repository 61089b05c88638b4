// The centres, with the layouts and buffers that passes over blocks of rows share.
#pragma once

#include <utility>

#include "exactmeans/base/buffer_pool.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout_cache.hpp"

namespace exactmeans {

template <class R>
struct SharedCentres {
    Centres<R> centres;
    LayoutCache<R> layouts{};
    BufferPool buffers{};

    explicit SharedCentres(Centres<R> own) : centres(std::move(own)) {}
};

}  // namespace exactmeans
