pub const SEMICOLONS: super::super::Format =
    super::super::Format { name: "sadf -d", starts: |_, _| false, read: |_, _| {} };
pub const TABS: super::super::Format =
    super::super::Format { name: "sadf -p", starts: |_, _| false, read: |_, _| {} };
