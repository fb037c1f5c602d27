//! The conditions: one file each, whose leading comment is the manual page, and one line in the list below.

mod cpu {
    pub(super) mod cpu_affinity_misplaced;
    pub(super) mod cpu_hog;
    pub(super) mod cpu_quota_throttled;
    pub(super) mod cpu_saturated;
    pub(super) mod cpu_steal;
    pub(super) mod fork_storm;
    pub(super) mod interrupt_imbalance;
    pub(super) mod load_high;
    pub(super) mod pressure_cpu;
    pub(super) mod runqueue_saturation;
    pub(super) mod runqueue_wait;
    pub(super) mod scheduling_stall;
    pub(super) mod single_thread_bottleneck;
}
mod disk {
    pub(super) mod array_sync;
    pub(super) mod dirty_writeback_stall;
    pub(super) mod disk_hog;
    pub(super) mod disk_saturated;
    pub(super) mod filesystem_full;
    pub(super) mod inode_exhaustion;
    pub(super) mod io_throttled;
    pub(super) mod iowait_high;
    pub(super) mod mirror_member_slow;
    pub(super) mod pressure_io;
    pub(super) mod slow_device;
    pub(super) mod stripe_misaligned;
    pub(super) mod tasks_in_d_state;
}
mod faults {
    pub(super) mod allocator_carrier_misfit;
    pub(super) mod fork_stall;
    pub(super) mod minor_fault_storm;
    pub(super) mod mmap_lock_contention;
    pub(super) mod user_lock_contention;
}
mod growth {
    pub(super) mod anonymous_growth;
    pub(super) mod memory_leak_managed;
    pub(super) mod memory_leak_native;
    pub(super) mod shmem_growth;
    pub(super) mod slab_dentry_bloat;
    pub(super) mod slab_inode_bloat;
    pub(super) mod slab_leak;
}
mod host {
    pub(super) mod clock_step;
    pub(super) mod config_drift;
    pub(super) mod device_lost;
    pub(super) mod hardware_error;
    pub(super) mod scheduled_burst;
}
mod memory {
    pub(super) mod cgroup_memory_high;
    pub(super) mod cgroup_memory_limit;
    pub(super) mod free_memory_low;
    pub(super) mod oom_kill;
    pub(super) mod pressure_memory;
    pub(super) mod swap_thrash;
}
mod network {
    pub(super) mod conntrack_full;
    pub(super) mod dns_query_growth;
    pub(super) mod listen_overflow;
    pub(super) mod neighbour_table_full;
    pub(super) mod nic_drops;
    pub(super) mod packet_cost;
    pub(super) mod port_exhaustion;
    pub(super) mod qdisc_drops;
    pub(super) mod resolver_slow;
    pub(super) mod retransmit_storm;
    pub(super) mod session_drop;
    pub(super) mod socket_buffer_overflow;
    pub(super) mod tcp_memory_pressure;
    pub(super) mod tcp_orphan_pressure;
}
mod page_cache {
    pub(super) mod active_file_eviction;
    pub(super) mod caches_dropped;
    pub(super) mod major_faults;
    pub(super) mod page_cache_eviction;
    pub(super) mod page_cache_thrash;
    pub(super) mod refaults;
    pub(super) mod streaming_read_flood;
}
mod process {
    pub(super) mod crash_loop;
    pub(super) mod fd_exhaustion;
    pub(super) mod futile_calls;
    pub(super) mod hung_task;
    pub(super) mod process_crash;
    pub(super) mod thread_explosion;
}
mod reclaim {
    pub(super) mod compaction_stall;
    pub(super) mod direct_reclaim;
    pub(super) mod kswapd_scanning;
    pub(super) mod mass_reclaim;
    pub(super) mod memory_fragmentation;
    pub(super) mod numa_imbalance;
}
mod service {
    pub(super) mod abandoned_work;
    pub(super) mod connection_limit;
    pub(super) mod deadlock;
    pub(super) mod dependency_slow;
    pub(super) mod dependency_unreachable;
    pub(super) mod event_loop_blocked;
    pub(super) mod failing_fast;
    pub(super) mod filesystem_hung;
    pub(super) mod gc_pressure;
    pub(super) mod load_increase;
    pub(super) mod lock_queue;
    pub(super) mod query_regression;
    pub(super) mod retry_storm;
    pub(super) mod service_failing;
    pub(super) mod service_silent;
    pub(super) mod service_slow;
    pub(super) mod service_slower;
    pub(super) mod timeout_cascade;
    pub(super) mod worker_pool_exhausted;
}

use crate::condition::Condition;

/// Every condition: roots first, then mechanisms, then symptoms, then findings.
#[must_use]
pub fn all() -> &'static [Condition] {
    static ALL: &[Condition] = &[
        page_cache::streaming_read_flood::CONDITION,
        page_cache::page_cache_thrash::CONDITION,
        memory::swap_thrash::CONDITION,
        memory::oom_kill::CONDITION,
        memory::cgroup_memory_limit::CONDITION,
        memory::cgroup_memory_high::CONDITION,
        disk::disk_hog::CONDITION,
        disk::array_sync::CONDITION,
        disk::mirror_member_slow::CONDITION,
        disk::slow_device::CONDITION,
        disk::dirty_writeback_stall::CONDITION,
        disk::io_throttled::CONDITION,
        disk::filesystem_full::CONDITION,
        disk::inode_exhaustion::CONDITION,
        cpu::cpu_hog::CONDITION,
        cpu::cpu_affinity_misplaced::CONDITION,
        cpu::single_thread_bottleneck::CONDITION,
        cpu::runqueue_saturation::CONDITION,
        cpu::cpu_quota_throttled::CONDITION,
        cpu::fork_storm::CONDITION,
        growth::slab_dentry_bloat::CONDITION,
        growth::memory_leak_native::CONDITION,
        growth::anonymous_growth::CONDITION,
        growth::shmem_growth::CONDITION,
        growth::slab_inode_bloat::CONDITION,
        growth::slab_leak::CONDITION,
        reclaim::memory_fragmentation::CONDITION,
        reclaim::numa_imbalance::CONDITION,
        faults::user_lock_contention::CONDITION,
        faults::fork_stall::CONDITION,
        growth::memory_leak_managed::CONDITION,
        faults::allocator_carrier_misfit::CONDITION,
        faults::minor_fault_storm::CONDITION,
        network::tcp_orphan_pressure::CONDITION,
        network::tcp_memory_pressure::CONDITION,
        network::qdisc_drops::CONDITION,
        network::nic_drops::CONDITION,
        network::conntrack_full::CONDITION,
        network::listen_overflow::CONDITION,
        network::socket_buffer_overflow::CONDITION,
        network::port_exhaustion::CONDITION,
        network::retransmit_storm::CONDITION,
        network::resolver_slow::CONDITION,
        service::dependency_unreachable::CONDITION,
        service::dependency_slow::CONDITION,
        service::load_increase::CONDITION,
        service::abandoned_work::CONDITION,
        service::query_regression::CONDITION,
        service::event_loop_blocked::CONDITION,
        service::lock_queue::CONDITION,
        service::deadlock::CONDITION,
        service::worker_pool_exhausted::CONDITION,
        service::filesystem_hung::CONDITION,
        service::gc_pressure::CONDITION,
        service::connection_limit::CONDITION,
        process::process_crash::CONDITION,
        process::crash_loop::CONDITION,
        process::fd_exhaustion::CONDITION,
        process::thread_explosion::CONDITION,
        process::hung_task::CONDITION,
        cpu::interrupt_imbalance::CONDITION,
        cpu::cpu_steal::CONDITION,
        host::clock_step::CONDITION,
        host::config_drift::CONDITION,
        host::scheduled_burst::CONDITION,
        host::hardware_error::CONDITION,
        host::device_lost::CONDITION,
        page_cache::caches_dropped::CONDITION,
        network::packet_cost::CONDITION,
        network::dns_query_growth::CONDITION,
        network::neighbour_table_full::CONDITION,
        service::retry_storm::CONDITION,
        service::timeout_cascade::CONDITION,
        memory::free_memory_low::CONDITION,
        reclaim::kswapd_scanning::CONDITION,
        reclaim::mass_reclaim::CONDITION,
        reclaim::compaction_stall::CONDITION,
        reclaim::direct_reclaim::CONDITION,
        page_cache::page_cache_eviction::CONDITION,
        page_cache::active_file_eviction::CONDITION,
        page_cache::refaults::CONDITION,
        page_cache::major_faults::CONDITION,
        faults::mmap_lock_contention::CONDITION,
        disk::disk_saturated::CONDITION,
        cpu::cpu_saturated::CONDITION,
        cpu::runqueue_wait::CONDITION,
        disk::tasks_in_d_state::CONDITION,
        cpu::pressure_cpu::CONDITION,
        disk::pressure_io::CONDITION,
        memory::pressure_memory::CONDITION,
        disk::iowait_high::CONDITION,
        cpu::load_high::CONDITION,
        cpu::scheduling_stall::CONDITION,
        network::session_drop::CONDITION,
        service::service_silent::CONDITION,
        service::service_slow::CONDITION,
        service::service_failing::CONDITION,
        service::failing_fast::CONDITION,
        disk::stripe_misaligned::CONDITION,
        process::futile_calls::CONDITION,
        service::service_slower::CONDITION,
    ];
    ALL
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::explain;
    use crate::trigger::Trigger;

    #[test]
    fn ids_are_unique_and_every_metric_exists() {
        let mut seen = BTreeSet::new();
        for condition in all() {
            assert!(seen.insert(condition.id), "{} stands twice", condition.id);
            assert!(condition.manual().len() > 80, "{} has no manual page", condition.id);
            for metric in condition.needs() {
                assert!(
                    mitra_model::lookup(metric).is_some(),
                    "{}: {metric} is not in the table",
                    condition.id
                );
            }
        }
    }

    /// Metrics whose names stand by themselves in a condition's source: what `observe` reads of its own.
    fn named(condition: &Condition) -> impl Iterator<Item = &'static str> {
        let code = condition.source.split("#[cfg(test)]").next().unwrap_or_default();
        code.split('"').filter(|text| mitra_model::lookup(text).is_some())
    }

    #[test]
    fn what_a_condition_reads_is_in_its_needs() {
        for condition in all() {
            let triggers = condition.triggers.iter().flat_map(Trigger::metrics);
            let settings = condition.settings.list.iter().map(|setting| &setting.metric);
            let others = triggers.chain(settings).chain(explain::IDENTITY).copied();
            let known: BTreeSet<&str> = condition.needs().into_iter().chain(others).collect();
            for metric in named(condition) {
                assert!(known.contains(metric), "{} reads {metric} and does not need it", condition.id);
            }
        }
    }
}
