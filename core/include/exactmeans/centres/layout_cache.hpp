// The layouts of a set of centres, made on first use and shared by all blocks of rows.
//
// Validity: a layout records the version of the centres that it is packed from, and for each centre
// the version in which it last moved. An update packs what differs and writes versions last, so
// that Ctrl-C or an exception leaves a layout that matches no version.
//
// Sharing: get() returns a shared_ptr to a layout that does not change while it is held. If a
// layout in use is out of date, the cache updates a copy of it; otherwise it updates the layout in
// place, which takes no memory and packs only the centres that moved. Algorithms therefore release
// their layouts when a pass ends, or in moved().
//
// A layout L is copyable and offers
//     L(const Centres&, std::shared_ptr<const LayoutSettings>, bool dense)
//     void update(const Centres&, const Threads&)    brings it up to date
//     Size version() const                           -1 if an update did not end
#pragma once

#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/centres/layout.hpp"

namespace exactmeans {

// A view of panels that keeps their layout alive.
template <class V>
struct HeldPanels : Panels<V> {
    std::shared_ptr<const Layout<V>> layout;

    HeldPanels() = default;
    explicit HeldPanels(std::shared_ptr<const Layout<V>> held)
        : Panels<V>(held->panels()), layout(std::move(held)) {}
};

// Layouts of one Centres<R>, or of copies of it. Several threads may use the cache at once.
template <class R>
class LayoutCache {
public:
    // A change of the settings drops all layouts.
    void set_packed_columns(std::vector<std::uint32_t> packed_columns) {
        change([&](LayoutSettings& to) { to.packed_columns = std::move(packed_columns); });
    }
    void set_rare_below(Size centres) {
        change([&](LayoutSettings& to) { to.rare_below = centres; });
    }
    void set_scratch_limit(Size bytes) {
        change([&](LayoutSettings& to) { to.scratch_limit = double(bytes); });
    }
    const LayoutSettings& settings() const { return *settings_; }

    // The layout L of these centres, for dense or CSR rows. Does not change while it is held.
    template <class L>
    std::shared_ptr<const L> get(const Centres<R>& centres, bool dense, const Threads& threads) {
        const std::lock_guard lock(mutex_);
        Slot& slot = slot_of<L>(centres, dense);
        L& layout = *static_cast<L*>(slot.layout.get());
        if (layout.version() != centres.version()) {
            if (slot.layout.use_count() > 1) {
                const auto copy = std::make_shared<L>(layout);
                copy->update(centres, threads);
                slot.layout = copy;
            } else {
                // No other thread holds the layout any more. Releasing one more copy of the pointer
                // orders the reads of former holders before the update. A fence would suffice, but
                // ThreadSanitizer does not support fences.
                std::shared_ptr<void>(slot.layout).reset();
                layout.update(centres, threads);
            }
        }
        return std::static_pointer_cast<const L>(slot.layout);
    }

    // State S that accumulates over passes, for example the statistics of the last pass. It is
    // updated in place, once per version of the centres. S has the members of a layout, but need
    // not be copyable.
    template <class S>
    std::shared_ptr<S> state(const Centres<R>& centres, const Threads& threads) {
        const std::lock_guard lock(mutex_);
        const auto own = std::static_pointer_cast<S>(slot_of<S>(centres, false).layout);
        if (own->version() != centres.version()) own->update(centres, threads);
        return own;
    }

    // The panels for dense or CSR rows.
    HeldPanels<R> panels(const Centres<R>& centres, bool dense, const Threads& threads) {
        return HeldPanels<R>(get<Layout<R>>(centres, dense, threads));
    }
    // float32 panels of sparse centres of any dtype, for CSR rows.
    HeldPanels<float> float32_panels(const Centres<R>& centres, const Threads& threads) {
        return HeldPanels<float>(get<Layout<float>>(centres, false, threads));
    }

private:
    struct Slot {
        std::type_index type;
        bool dense;
        std::shared_ptr<void> layout;
        Size used;  // the version of the centres at the last use
    };

    template <class Set>
    void change(Set set) {
        const std::lock_guard lock(mutex_);
        auto settings = std::make_shared<LayoutSettings>(*settings_);
        set(*settings);
        settings_ = std::move(settings);
        slots_.clear();
    }

    template <class L>
    Slot& slot_of(const Centres<R>& centres, bool dense) {
        if (centres.version() != version_) {
            previous_ = version_;
            version_ = centres.version();
        }
        if (centres.k() != k_ || centres.d() != d_ || centres.sparse() != sparse_) slots_.clear();
        k_ = centres.k();
        d_ = centres.d();
        sparse_ = centres.sparse();
        for (Slot& slot : slots_)
            if (slot.type == typeid(L) && slot.dense == dense) {
                slot.used = version_;
                return slot;
            }
        // A pass may use several layouts. Those that neither this pass nor the last one used are
        // dropped before the new one is made.
        std::erase_if(slots_, [&](const Slot& slot) {
            return slot.used != version_ && slot.used != previous_;
        });
        slots_.push_back(
            {typeid(L), dense, std::make_shared<L>(centres, settings_, dense), version_});
        return slots_.back();
    }

    std::mutex mutex_;
    std::shared_ptr<const LayoutSettings> settings_ = std::make_shared<LayoutSettings>();
    std::vector<Slot> slots_;
    Size version_ = -1, previous_ = -1;  // of the centres: the current one and the one before
    Size k_ = 0, d_ = 0;
    bool sparse_ = false;
};

}  // namespace exactmeans
