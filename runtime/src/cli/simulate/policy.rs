//! The policy file of a simulation. Sections that a server has too are read as a server reads them. A named tenant or model
//! is the default one with what its own section sets.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;
use weir::config::{SchedulingConfig, TenantConfig};
use weir::units::{Size, span};
use weir_gpu::simulate::{Device, Model, Policy};
use weir_gpu::{Batching, Keep, ModelPolicy};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyFile {
    #[serde(with = "span::optional")]
    queue_timeout: Option<Duration>,
    #[serde(with = "span::optional")]
    deadline: Option<Duration>,
    device: DeviceSection,
    scheduling: SchedulingConfig,
    tenant: Table,
    tenants: BTreeMap<String, Table>,
    model: Table,
    models: BTreeMap<String, Table>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeviceSection {
    lanes: NonZeroUsize,
    queue: usize,
    memory: Size,
    fifo: bool,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModelSection {
    operators: NonZeroU32,
    #[serde(with = "span")]
    run_time: Duration,
    #[serde(with = "span")]
    row_time: Duration,
    bytes: Size,
    #[serde(with = "span")]
    load_time: Duration,
    #[serde(with = "span")]
    keep_alive: Duration,
    pin: bool,
    #[serde(with = "span")]
    min_resident: Duration,
    max_batch: u64,
    #[serde(with = "span")]
    max_queue_delay: Duration,
    preferred_batch_sizes: Vec<u64>,
    padding: bool,
    visibility: Visibility,
}

#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Visibility {
    Private,
    Public,
}

impl Default for DeviceSection {
    fn default() -> Self {
        let Device { lanes, memory, queue, fifo, .. } = Device::default();
        Self { lanes, queue, memory: Size::bytes(memory), fifo }
    }
}

impl Default for ModelSection {
    fn default() -> Self {
        let Model { operators, run_time, row_time, bytes, load_time, .. } = Model::default();
        let Batching { max_batch, max_queue_delay, preferred, padding } = Batching::default();
        Self {
            operators,
            run_time,
            row_time,
            bytes: Size::bytes(bytes),
            load_time,
            // As on a server.
            keep_alive: Duration::from_secs(60),
            pin: false,
            min_resident: Duration::ZERO,
            max_batch,
            max_queue_delay,
            preferred_batch_sizes: preferred,
            padding,
            visibility: Visibility::Private,
        }
    }
}

impl ModelSection {
    fn check(&self) -> Result<(), String> {
        let (sizes, most) = (&self.preferred_batch_sizes, self.max_batch);
        if most == 0 {
            return Err("max_batch is 0; it must be 1, for no batches, or more".to_owned());
        }
        if let Some(size) = sizes.iter().find(|size| !(1..=most).contains(*size)) {
            return Err(format!("preferred_batch_sizes has {size}; each must be 1 to {most}, the max_batch"));
        }
        if self.padding && sizes.is_empty() {
            return Err(
                "padding is true, but there are no preferred_batch_sizes to fill batches up to".to_owned()
            );
        }
        Ok(())
    }
}

impl From<ModelSection> for Model {
    fn from(section: ModelSection) -> Self {
        let ModelSection { operators, run_time, row_time, load_time, keep_alive, pin, min_resident, .. } =
            section;
        let ModelSection { max_batch, max_queue_delay, preferred_batch_sizes: preferred, padding, .. } =
            section;
        let batching = Arc::new(Batching { max_batch, max_queue_delay, preferred, padding });
        let keep = Keep { keep_alive, pin, min_resident };
        let public = section.visibility == Visibility::Public;
        let policy = ModelPolicy { public, keep, batching, ..ModelPolicy::default() };
        Self { operators, run_time, row_time, bytes: section.bytes.as_u64(), load_time, policy }
    }
}

/// # Errors
/// A sentence that names the section, what is wrong there and what is allowed.
pub fn parse(text: &str) -> Result<Policy, String> {
    let file: PolicyFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let PolicyFile { queue_timeout, deadline, device, scheduling, tenant, tenants, model, models } = file;
    scheduling.check()?;
    let share = |section: &str, over: &Table| {
        let config: TenantConfig = read(section, &tenant, over)?;
        config.check().map_err(|error| format!("[{section}]: {error}"))?;
        Ok((&config).into())
    };
    let simulated = |section: &str, over: &Table| {
        let config: ModelSection = read(section, &model, over)?;
        config.check().map_err(|error| format!("[{section}]: {error}"))?;
        Ok(config.into())
    };
    let DeviceSection { lanes, queue, memory, fifo } = device;
    Ok(Policy {
        device: Device {
            lanes,
            memory: memory.as_u64(),
            queue,
            sharing: (&scheduling).into(),
            eviction: scheduling.eviction.into(),
            fifo,
        },
        tenant: share("tenant", &Table::new())?,
        tenants: named("tenants", &tenants, share)?,
        model: simulated("model", &Table::new())?,
        models: named("models", &models, simulated)?,
        queue_timeout,
        deadline,
    })
}

fn named<T>(
    kind: &str,
    sections: &BTreeMap<String, Table>,
    read: impl Fn(&str, &Table) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let read = |(name, over): (&String, &Table)| Ok((name.clone(), read(&format!("{kind}.{name}"), over)?));
    sections.iter().map(read).collect()
}

/// A section over its default one.
fn read<T: DeserializeOwned>(section: &str, default: &Table, over: &Table) -> Result<T, String> {
    let mut table = default.clone();
    table.extend(over.clone());
    table.try_into().map_err(|error: toml::de::Error| format!("[{section}]: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use weir_gpu::{Class, Eviction, TenantShare};

    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        let keep = Keep { keep_alive: Duration::from_secs(60), ..Keep::default() };
        let model = Model { policy: ModelPolicy { keep, ..ModelPolicy::default() }, ..Model::default() };
        assert_eq!(parse("").unwrap(), Policy { model, ..Policy::default() });
    }

    #[test]
    fn a_named_section_is_the_default_one_with_what_it_sets() {
        let policy = parse(
            "deadline = \"2s\"\n\
             [device]\nlanes = 2\nmemory = \"1GiB\"\n\
             [scheduling]\nquantum = \"5ms\"\nbatch_share = 10\neviction = \"lru\"\n\
             [tenant]\nqueue = 9\nclass = \"standard\"\n\
             [tenants.a]\nweight = 4\ndevice_memory = \"1MiB\"\n\
             [model]\nrow_time = \"3ms\"\nbytes = 7\n\
             [models.public]\nvisibility = \"public\"\nmax_batch = 8\npreferred_batch_sizes = [4, 8]\npadding = true\n",
        )
        .unwrap();
        assert_eq!((policy.device.lanes.get(), policy.device.memory), (2, 1 << 30));
        assert_eq!((policy.device.sharing.batch_share, policy.device.eviction), (100, Eviction::Lru));
        assert_eq!(policy.deadline, Some(Duration::from_secs(2)));
        let memory = Some(1 << 20);
        let share = TenantShare { weight: 4, class: Class::Standard, queue: 9, memory, gpu_memory: memory };
        assert_eq!(policy.tenants["a"], share);
        let model = &policy.models["public"];
        assert_eq!((model.row_time, model.bytes, model.policy.public), (Duration::from_millis(3), 7, true));
        assert_eq!((model.policy.batching.max_batch, policy.model.policy.batching.max_batch), (8, 1));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_section() {
        let refusal = |text: &str| parse(text).unwrap_err();
        assert!(refusal("lanes = 2").contains("unknown field `lanes`"));
        assert!(refusal("[device]\nlanes = 0").contains("nonzero"));
        assert!(refusal("[models.a]\nspeed = 2").starts_with("[models.a]: unknown field `speed`"));
        assert!(refusal("[model]\nrun_time = 5").starts_with("[model]: invalid type"));
        assert_eq!(refusal("[tenants.a]\nweight = 0"), "[tenants.a]: weight is 0; it must be 1 to 1000");
        assert!(refusal("[models.a]\nmax_batch = 0").starts_with("[models.a]: max_batch is 0"));
        assert!(refusal("[model]\npreferred_batch_sizes = [2]").contains("has 2; each must be 1 to 1"));
        assert!(refusal("[model]\npadding = true").contains("no preferred_batch_sizes"));
        assert!(refusal("[scheduling]\nstandard_share = 99\nbatch_share = 9").contains("100"));
    }
}
