//! The end-to-end suite: one binary, a module per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod access;
mod audit;
mod backup;
mod billing;
mod calls;
mod cli;
mod conformance;
mod corpus;
mod crash;
mod egress;
mod example;
mod keys;
mod lifecycle;
mod limits;
mod metering;
mod mistakes;
mod models;
mod observability;
mod openapi;
mod policy;
mod preparation;
mod quotas;
mod restart;
mod sharing;
mod storage;
mod tls;
mod traces;
mod traffic;
mod usage;
mod zero;
