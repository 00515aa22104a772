//! A model that is prepared again for each shape of its inputs.

use std::sync::{Arc, Mutex};

use tract_onnx::prelude::{InferenceModel, TDim, TVec};
use tract_onnx::tract_hir::infer::ShapeFactoid;

use super::plan::TractPlan;
use super::{EngineError, Outputs, Shapes, Tract, are_shapes_of, invalid, lock, text};
use crate::Error;
use crate::backend::{Book, MAX_PLANS};
use crate::tensor::Tensor;

pub(super) struct PerShape {
    model: InferenceModel,
    /// The newest last.
    plans: Mutex<Vec<(Shapes, Arc<TractPlan>)>>,
    outputs: Outputs,
    engine: Tract,
}

/// Why there is no plan for a shape.
pub(super) enum Failure {
    /// The engine does not take it.
    Engine(EngineError),
    Ours(Error),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// While a model is loaded, with a shape that nobody asked for.
    pub fn of_load(self) -> Error {
        match self {
            Self::Engine(error) => invalid(error),
            Self::Ours(error) => error,
        }
    }

    /// For a caller's shapes.
    pub fn of_shapes(self, shapes: &[Vec<usize>]) -> Error {
        match self {
            Self::Engine(error) => {
                let reason = text(&error);
                Error::InvalidInputs(format!("the model does not take shapes {shapes:?}: {reason}"))
            }
            Self::Ours(error) => error,
        }
    }
}

impl PerShape {
    pub fn new(model: InferenceModel, outputs: Outputs, engine: Tract) -> Self {
        Self { model, plans: Mutex::default(), outputs, engine }
    }

    /// The plan for inputs of these shapes: one that is kept, or a new one. The door asks for one at a time.
    pub fn plan(&self, shapes: Shapes, book: &mut Book<'_>) -> Result<Arc<TractPlan>, Failure> {
        if let Some(plan) = self.find(|kept| *kept == shapes) {
            return Ok(plan);
        }
        let mut model = self.model.clone();
        for (index, shape) in shapes.iter().enumerate() {
            let dims: TVec<TDim> = shape.iter().map(|size| TDim::from(*size)).collect();
            let fact = model.input_fact(index)?.clone().with_shape(ShapeFactoid::from(dims));
            model.set_input_fact(index, fact)?;
        }
        let model = self.engine.simplified(model)?;
        let model = self.engine.translated(model).map_err(Failure::Ours)?;
        let plan = TractPlan::new(model, Arc::clone(&self.outputs), self.engine.clone());
        let plan = plan.map_err(Failure::Ours)?;
        plan.has(book(plan.weights()).map_err(Failure::Ours)?);
        let mut plans = lock(&self.plans);
        if plans.len() >= MAX_PLANS {
            plans.remove(0);
        }
        plans.push((shapes, Arc::clone(&plan)));
        Ok(plan)
    }

    /// The plan for these inputs, if it is kept.
    pub fn kept(&self, inputs: &[Tensor]) -> Option<Arc<TractPlan>> {
        self.find(|kept| are_shapes_of(kept, inputs))
    }

    /// Those of the plan that was used last.
    pub fn host_operators(&self) -> Vec<String> {
        lock(&self.plans).last().map(|(_, plan)| plan.host_operators()).unwrap_or_default()
    }

    fn find(&self, is_wanted: impl Fn(&Shapes) -> bool) -> Option<Arc<TractPlan>> {
        let mut plans = lock(&self.plans);
        let position = plans.iter().position(|(kept, _)| is_wanted(kept))?;
        let found = plans.remove(position);
        let plan = Arc::clone(&found.1);
        plans.push(found);
        Some(plan)
    }
}
