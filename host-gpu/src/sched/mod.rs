//! Whose turn it is on a device.

pub(crate) mod lane;
