//! A model in memory: what it is there for, what it takes, and what is known about preparing it for more shapes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::stay::Stay;
use super::{Hold, Residency};
use crate::Error;
use crate::backend::{Graph, Parsed, Shapes};
use crate::model::ModelSource;
use crate::quota::{Kind, Reserved};

/// Shapes that a graph remembers having been examined for.
const MAX_EXAMINED: usize = 1024;

/// What is in memory of a model, by its [`Tier`].
pub(crate) enum Form {
    Graph(Box<dyn Graph>),
    Parsed(Box<dyn Parsed>),
}

/// A model in memory, and what is known about preparing it for more shapes.
pub(crate) struct Resident {
    /// Tells it from all others that were or will be in memory.
    pub id: u64,
    form: Form,
    /// Where it came from, to examine it for shapes that it has not been examined for.
    pub model: ModelSource,
    /// The oldest first.
    examined: Mutex<VecDeque<Shapes>>,
    /// Held by the one that prepares the graph for a shape: others who wait for the same shape find it done.
    pub preparing: Arc<tokio::sync::Mutex<()>>,
    /// Bytes that it takes of the device when it is loaded, and for a start again for each plan.
    pub memory: u64,
    stay: Arc<Stay>,
    /// Whether its outputs were seen not to have a row for each row of its inputs.
    alone: AtomicBool,
    /// Bytes of its plans for one shape each.
    plans: Arc<AtomicU64>,
    /// What it was made of, for as long as it is read again for each shape.
    _source: Option<Hold>,
    /// The last field, so that bytes come back after the memory has.
    reserved: Reserved,
}

/// The memory of a plan, which goes with it.
pub(crate) struct Booked {
    reserved: Reserved,
    plans: Arc<AtomicU64>,
}

impl Drop for Booked {
    fn drop(&mut self) {
        self.plans.fetch_sub(self.reserved.bytes(), Ordering::Relaxed);
    }
}

impl Resident {
    /// A model that was loaded with `reserved` for it, on its owner's account.
    /// `source` is what it was made of, where that stays.
    pub fn new(
        form: Form,
        model: ModelSource,
        reserved: Reserved,
        stay: Arc<Stay>,
        source: Option<Hold>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let examined = match &form {
            // The examination before the load looked at these.
            Form::Graph(graph) => VecDeque::from([graph.single()]),
            Form::Parsed(_) => VecDeque::new(),
        };
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            alone: AtomicBool::new(false),
            examined: Mutex::new(examined),
            form,
            model,
            preparing: Arc::default(),
            memory: reserved.bytes(),
            stay,
            plans: Arc::default(),
            _source: source,
            reserved,
        }
    }

    /// # Errors
    /// [`Error::Engine`] for a model that is not on a device; no lease is on one.
    pub fn graph(&self) -> Result<&dyn Graph, Error> {
        match &self.form {
            Form::Graph(graph) => Ok(&**graph),
            Form::Parsed(_) => Err(Error::Engine("the model is not on a device".to_owned())),
        }
    }

    /// # Errors
    /// [`Error::Engine`] for a model that is on a device.
    pub fn parsed(&self) -> Result<&dyn Parsed, Error> {
        match &self.form {
            Form::Parsed(parsed) => Ok(&**parsed),
            Form::Graph(_) => Err(Error::Engine("the model has been prepared".to_owned())),
        }
    }

    /// Takes memory for one more plan: as much as for the graph itself, until more is known.
    ///
    /// # Errors
    /// As [`Residency::reserve`].
    pub fn reserve(&self, residency: &Residency) -> Result<Reserved, Error> {
        residency.reserve(self.stay.owner(), Kind::Weights, self.memory, self.stay.tab())
    }

    /// A tenant uses it. Where it is everybody's, those who do are told of with its memory.
    pub fn used_by(&self, tenant: &Arc<str>) {
        self.stay.used_by(tenant);
    }

    /// What a plan with this memory has to keep for as long as it lives.
    pub fn booked(&self, reserved: Reserved) -> Booked {
        let plans = Arc::clone(&self.plans);
        plans.fetch_add(reserved.bytes(), Ordering::Relaxed);
        Booked { reserved, plans }
    }

    /// Whether requests for it may ride together.
    pub fn rides(&self) -> bool {
        !self.alone.load(Ordering::Relaxed)
    }

    pub fn never_rides(&self) {
        self.alone.store(true, Ordering::Relaxed);
    }

    /// Bytes that it has of the device's memory, its plans' included.
    pub fn bytes(&self) -> u64 {
        self.reserved.bytes().saturating_add(self.plans.load(Ordering::Relaxed))
    }

    /// Whether preparing the graph for these shapes can do what no examination has seen.
    pub fn needs_examination(&self, shapes: &Shapes) -> bool {
        self.graph().is_ok_and(|graph| graph.made_per_shape())
            && !self.examined.lock().unwrap_or_else(PoisonError::into_inner).contains(shapes)
    }

    pub fn remember_examined(&self, shapes: Shapes) {
        let mut examined = self.examined.lock().unwrap_or_else(PoisonError::into_inner);
        if examined.len() >= MAX_EXAMINED {
            examined.pop_front();
        }
        examined.push_back(shapes);
    }
}
