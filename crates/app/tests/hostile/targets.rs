//! The hostile programs. What each does stands at the beginning of its source.

use crate::commands::{Asked, ask};
use crate::harness::{As, Hostile};

/// A test for each, and a list of all.
macro_rules! hostile {
    ($($(#[$meta:meta])* $name:ident: $program:literal $variant:literal as $user:ident, asked $asked:ident;)*) => {
        $(
            #[test]
            #[ignore = "needs root: make test-kernel"]
            $(#[$meta])*
            fn $name() {
                ask(Hostile { program: $program, variant: $variant, user: As::$user }, Asked::$asked);
            }
        )*

        /// All of them.
        pub const ALL: &[Hostile] =
            &[$(Hostile { program: $program, variant: $variant, user: As::$user }),*];
    };
}

hostile! {
    // It becomes another while it is looked at.
    a_java_vm_of_nobody: "jvm" "stays" as Nobody, asked All;
    a_java_vm_that_gets_rights_at_once: "jvm" "privileged1" as Nobody, asked Heap;
    a_java_vm_that_gets_rights_when_it_is_read: "jvm" "privileged2" as Nobody, asked Heap;
    a_java_vm_that_becomes_another_all_the_time: "jvm" "execs" as Nobody, asked Heap;
    programs_that_follow_each_other: "churn" "execs" as Nobody, asked All;
    mappings_that_come_and_go: "churn" "maps" as Nobody, asked All;
    threads_that_come_and_go: "churn" "threads" as Nobody, asked All;
    processes_that_come_and_go: "churn" "forks" as Nobody, asked Heap;
    a_first_thread_that_has_ended: "churn" "leader" as Nobody, asked All;
    a_process_that_is_stopped: "churn" "stopped" as Nobody, asked All;
    a_number_that_many_have: "churn" "numbers" as Root, asked All;

    // The name of a mapped file leads to something else.
    libraries_that_become_files: "swapped" "secret,sparse,another,deleted,truncated" as Nobody, asked All;
    libraries_that_become_no_files: "swapped" "fifo,directory,loop" as Nobody, asked All;
    a_library_that_becomes_a_device: "swapped" "device" as Root, asked All;
    a_pipe_with_the_number_of_a_library: "inode" "fifo" as Root, asked All;
    a_device_with_the_number_of_a_library: "inode" "device" as Root, asked All;
    a_secret_with_the_number_of_a_library: "inode" "secret" as Root, asked All;
    a_pipe_of_the_machine_with_the_number_of_a_library: "inode" "outside" as Root, asked All;

    // Files that lie.
    sections_that_are_not_there:
        "elf" "sections-nowhere,sections-many,sections-overflow,sections-overlap,sections-end,names-nowhere,cut" as Nobody, asked Stacks;
    parts_that_are_not_there: "elf" "parts-many,parts-empty" as Nobody, asked Stacks;
    debug_information_that_is_said_to_be_huge:
        "elf" "packed-zlib,packed-zstd,packed-negative,packed-unknown" as Nobody, asked Stacks;
    debug_information_that_unfolds: "elf" "bomb" as Nobody, asked Stacks;
    symbols_that_are_not_there:
        "elf" "symbols-many,symbols-odd,symbols-unnamed,symbols-linked,strings-endless" as Nobody, asked Stacks;
    symbols_with_hostile_names: "elf" "strings-evil" as Nobody, asked Names;
    notes_that_are_not_there: "elf" "note-sizes,note-empty,note-one-byte" as Nobody, asked Stacks;
    a_link_to_debug_information_that_is_a_pipe: "elf" "link-fifo" as Nobody, asked Names;
    links_to_debug_information_elsewhere: "elf" "link-file,link-up-file" as Nobody, asked Names;
    rules_for_callers_that_are_nonsense: "elf" "frames-many,frames-garbage,frames-expression" as Nobody, asked Stacks;
    a_library_that_shrinks_while_it_is_read: "elf" "shrinks" as Nobody, asked Stacks;

    // What a runtime says of its functions.
    a_perf_map_that_is_a_pipe: "perfmap" "fifo" as Nobody, asked Names;
    a_perf_map_that_is_a_link: "perfmap" "link" as Nobody, asked Names;
    a_perf_map_that_is_a_secret_by_another_name: "perfmap" "hard-link" as Root, asked Names;
    a_perf_map_that_is_a_folder: "perfmap" "directory" as Nobody, asked Names;
    a_perf_map_that_is_huge: "perfmap" "sparse" as Nobody, asked Names;
    a_perf_map_of_hostile_names: "perfmap" "evil" as Nobody, asked Names;
    a_perf_map_of_odd_numbers: "perfmap" "numbers" as Nobody, asked Names;
    a_perf_map_of_very_many: "perfmap" "many" as Nobody, asked Names;
    a_perf_map_that_changes: "perfmap" "changes" as Nobody, asked Names;

    // Runtimes and allocators that are none.
    a_python_of_garbage: "runtime" "python-garbage" as Nobody, asked Heap;
    a_python_that_says_where_everything_is: "runtime" "python-offsets" as Nobody, asked Heap;
    a_python_that_leads_to_itself: "runtime" "python-cycle" as Nobody, asked Heap;
    a_python_with_endless_symbols: "runtime" "python-huge" as Nobody, asked Heap;
    an_erlang_of_nobody: "runtime" "beam" as Nobody, asked Heap;
    arenas_that_lead_to_each_other: "runtime" "arenas" as Nobody, asked Heap;

    // Names.
    hostile_names: "names" "stay" as Nobody, asked All;
    names_that_change: "names" "changes" as Nobody, asked All;
    a_command_line_without_an_end: "names" "long" as Nobody, asked Heap;
    no_name_at_all: "names" "none" as Nobody, asked Heap;

    // Memory that is not there, or that somebody would have to bring.
    code_that_is_waited_for: "memory" "waits-code" as Root, asked All;
    a_python_that_is_waited_for: "memory" "waits-python" as Root, asked All;
    a_command_line_that_is_waited_for: "memory" "waits-line" as Root, asked All;
    pages_that_go_when_they_are_read: "memory" "goes" as Root, asked Heap;
    memory_that_nobody_may_read: "memory" "unreadable" as Nobody, asked All;
    a_terabyte_with_holes: "memory" "sparse" as Nobody, asked Heap;
    as_many_mappings_as_there_may_be: "memory" "many" as Nobody, asked All;
    a_server_of_files_that_is_silent: "fuse" "file" as Root, asked All;
    a_command_line_of_a_server_that_is_silent: "fuse" "line" as Root, asked All;
    mappings_that_wait_for_a_server: "fuse" "locked" as Root, asked All;

    // Places of its own.
    a_tree_of_lies: "space" "lies" as Root, asked All;
    a_tree_that_is_gone: "space" "gone" as Root, asked All;
    a_tree_of_links_out_of_it: "space" "links" as Root, asked All;
}
