//! The conditions: one file each, whose leading comment is the manual page, and one line in the list below.

mod active_file_eviction;
mod allocator_carrier_misfit;
mod anonymous_growth;
mod cgroup_memory_limit;
mod clock_step;
mod compaction_stall;
pub(crate) mod config_drift;
mod conntrack_full;
mod cpu_affinity_misplaced;
mod cpu_hog;
mod cpu_quota_throttled;
mod cpu_saturated;
mod cpu_steal;
mod crash_loop;
mod device_lost;
mod direct_reclaim;
mod dirty_writeback_stall;
mod disk_hog;
pub mod disk_saturated;
mod fd_exhaustion;
mod filesystem_full;
mod fork_stall;
mod fork_storm;
mod free_memory_low;
mod hardware_error;
mod hung_task;
mod inode_exhaustion;
mod interrupt_imbalance;
mod io_throttled;
mod iowait_high;
mod kswapd_scanning;
mod listen_overflow;
mod load_high;
mod major_faults;
mod mass_reclaim;
mod memory_fragmentation;
mod memory_leak_managed;
mod memory_leak_native;
mod minor_fault_storm;
mod mirror_member_slow;
mod mmap_lock_contention;
mod nic_drops;
mod numa_imbalance;
mod oom_kill;
mod page_cache_eviction;
mod page_cache_thrash;
mod port_exhaustion;
mod pressure_cpu;
mod pressure_io;
mod pressure_memory;
mod process_crash;
mod qdisc_drops;
mod refaults;
mod resolver_slow;
mod retransmit_storm;
mod runqueue_saturation;
mod runqueue_wait;
mod scheduled_burst;
mod scheduling_stall;
mod session_drop;
mod shmem_growth;
mod single_thread_bottleneck;
mod slab_dentry_bloat;
mod slab_inode_bloat;
mod slab_leak;
mod slow_device;
mod socket_buffer_overflow;
pub mod streaming_read_flood;
mod stripe_misaligned;
mod swap_thrash;
mod tasks_in_d_state;
mod tcp_memory_pressure;
mod tcp_orphan_pressure;
mod thread_explosion;
mod user_lock_contention;

use crate::condition::Condition;

/// Every condition: roots first, then mechanisms, then symptoms.
#[must_use]
pub fn all() -> &'static [Condition] {
    static ALL: &[Condition] = &[
        streaming_read_flood::CONDITION,
        page_cache_thrash::CONDITION,
        swap_thrash::CONDITION,
        oom_kill::CONDITION,
        cgroup_memory_limit::CONDITION,
        disk_hog::CONDITION,
        mirror_member_slow::CONDITION,
        slow_device::CONDITION,
        dirty_writeback_stall::CONDITION,
        io_throttled::CONDITION,
        filesystem_full::CONDITION,
        inode_exhaustion::CONDITION,
        cpu_hog::CONDITION,
        cpu_affinity_misplaced::CONDITION,
        single_thread_bottleneck::CONDITION,
        runqueue_saturation::CONDITION,
        cpu_quota_throttled::CONDITION,
        fork_storm::CONDITION,
        slab_dentry_bloat::CONDITION,
        memory_leak_native::CONDITION,
        anonymous_growth::CONDITION,
        shmem_growth::CONDITION,
        slab_inode_bloat::CONDITION,
        slab_leak::CONDITION,
        memory_fragmentation::CONDITION,
        numa_imbalance::CONDITION,
        user_lock_contention::CONDITION,
        fork_stall::CONDITION,
        memory_leak_managed::CONDITION,
        allocator_carrier_misfit::CONDITION,
        minor_fault_storm::CONDITION,
        tcp_orphan_pressure::CONDITION,
        tcp_memory_pressure::CONDITION,
        qdisc_drops::CONDITION,
        nic_drops::CONDITION,
        conntrack_full::CONDITION,
        listen_overflow::CONDITION,
        socket_buffer_overflow::CONDITION,
        port_exhaustion::CONDITION,
        retransmit_storm::CONDITION,
        resolver_slow::CONDITION,
        process_crash::CONDITION,
        crash_loop::CONDITION,
        fd_exhaustion::CONDITION,
        thread_explosion::CONDITION,
        hung_task::CONDITION,
        interrupt_imbalance::CONDITION,
        cpu_steal::CONDITION,
        clock_step::CONDITION,
        config_drift::CONDITION,
        scheduled_burst::CONDITION,
        hardware_error::CONDITION,
        device_lost::CONDITION,
        stripe_misaligned::CONDITION,
        free_memory_low::CONDITION,
        kswapd_scanning::CONDITION,
        mass_reclaim::CONDITION,
        compaction_stall::CONDITION,
        direct_reclaim::CONDITION,
        page_cache_eviction::CONDITION,
        active_file_eviction::CONDITION,
        refaults::CONDITION,
        major_faults::CONDITION,
        mmap_lock_contention::CONDITION,
        disk_saturated::CONDITION,
        cpu_saturated::CONDITION,
        runqueue_wait::CONDITION,
        tasks_in_d_state::CONDITION,
        pressure_cpu::CONDITION,
        pressure_io::CONDITION,
        pressure_memory::CONDITION,
        iowait_high::CONDITION,
        load_high::CONDITION,
        scheduling_stall::CONDITION,
        session_drop::CONDITION,
    ];
    ALL
}

/// The condition of that id.
#[must_use]
pub fn get(id: &str) -> Option<&'static Condition> {
    all().iter().find(|c| c.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_metric_exists() {
        let mut seen = std::collections::BTreeSet::new();
        for condition in all() {
            assert!(seen.insert(condition.id), "{} stands twice", condition.id);
            assert!(condition.manual().len() > 80, "{} has no manual page", condition.id);
            for metric in condition.needs {
                assert!(
                    mitra_model::lookup(metric).is_some(),
                    "{}: {metric} is not in the table",
                    condition.id
                );
            }
        }
    }
}
