//! Conditions, the mechanism graph, the ledger of lost time, the report.
