//! The direct engine on a GPU, and what its events say. Each thread has a stream of its own: what belongs together is
//! called on one thread.

#[cfg(feature = "cuda")]
pub use with::{hold, prepare, timed, wait};
#[cfg(not(feature = "cuda"))]
pub use without::{hold, prepare, timed, wait};

#[cfg(feature = "cuda")]
mod with {
    use std::any::Any;
    use std::io::Cursor;
    use std::time::Duration;

    use anyhow::Context;
    use cudarc::driver::sys::CUevent_flags;
    use tract_cuda::with_cuda_stream;
    use tract_onnx::prelude::{
        Datum, Framework, InferenceFact, InferenceModelExt, Runnable, TValue, Tensor as EngineTensor,
        runtime_for_name,
    };
    use weir_gpu::{Dtype, Tensor};

    /// The model for inputs of this one's shape, and the input.
    pub fn prepare(bytes: &[u8], input: &Tensor) -> anyhow::Result<(Box<dyn Runnable>, TValue)> {
        let runtime = runtime_for_name("cuda")?.context("the engine knows no GPU")?;
        let given = match input.dtype() {
            Dtype::I32 => numbers(input, i32::from_le_bytes)?,
            _ => numbers(input, f32::from_le_bytes)?,
        };
        let mut model = tract_onnx::onnx().model_for_read(&mut Cursor::new(bytes))?;
        model.set_input_fact(0, InferenceFact::dt_shape(given.datum_type(), input.shape()))?;
        // Not optimised: that would be for the CPU.
        let model = model.into_typed()?.into_decluttered()?;
        Ok((runtime.prepare(model)?, given.into()))
    }

    fn numbers<T: Datum + Copy>(input: &Tensor, read: fn([u8; 4]) -> T) -> anyhow::Result<EngineTensor> {
        let (chunks, _) = input.data().as_chunks::<4>();
        let values: Vec<T> = chunks.iter().map(|bytes| read(*bytes)).collect();
        EngineTensor::from_shape(input.shape(), &values)
    }

    /// The time between two events on this thread's stream, with this work between them.
    pub fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
        let event =
            || with_cuda_stream(|stream| Ok(stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?));
        let began = event()?;
        work()?;
        let ended = event()?;
        let millis = began.elapsed_ms(&ended)?;
        Ok(Duration::try_from_secs_f64(f64::from(millis) / 1e3)?)
    }

    /// Waits for what this thread has had begun.
    pub fn wait() -> anyhow::Result<()> {
        with_cuda_stream(|stream| Ok(stream.synchronize()?))
    }

    /// Takes this many bytes of the device's memory, behind the door's back, until it is dropped.
    pub fn hold(bytes: u64) -> anyhow::Result<Box<dyn Any>> {
        let bytes = usize::try_from(bytes)?;
        let held = with_cuda_stream(|stream| Ok(stream.alloc_zeros::<u8>(bytes)?))?;
        wait()?;
        Ok(Box::new(held))
    }
}

#[cfg(not(feature = "cuda"))]
mod without {
    use std::any::Any;
    use std::time::Duration;

    use anyhow::bail;
    use tract_onnx::prelude::{Runnable, TValue};
    use weir_gpu::Tensor;

    const WHY: &str = "this check was built without the feature `cuda`";

    pub fn prepare(_: &[u8], _: &Tensor) -> anyhow::Result<(Box<dyn Runnable>, TValue)> {
        bail!(WHY)
    }

    pub fn timed(_: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
        bail!(WHY)
    }

    pub fn wait() -> anyhow::Result<()> {
        bail!(WHY)
    }

    pub fn hold(_: u64) -> anyhow::Result<Box<dyn Any>> {
        bail!(WHY)
    }
}
