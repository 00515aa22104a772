//! How large an axis is, from the engine's expression for it and what is known of the symbols in it.
//!
//! The arithmetic saturates far above any memory there is, so that an expression made to overflow comes out as too
//! large and not as small. A symbol of which only a bound is known stands for a range, and so does what is computed
//! from it: a tensor of `100 - count` elements is largest where `count` is smallest.

use tract_onnx::prelude::TVec;
use tract_onnx::tract_core::internal::{Symbol, SymbolValues, TDim, TypedFact, solve_for};
use tract_onnx::tract_core::ops::matmul::pack::DynPackedExoticFact;
use tract_onnx::tract_core::tract_linalg::mmm::PackedExoticFact;

/// Expressions nested deeper than this are not followed.
const MAX_DEPTH: usize = 256;

/// Elements along each axis of a tensor.
pub(super) type Dims = TVec<u64>;

/// The least and the most that a number can be.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: i128,
    most: i128,
}

/// What is known of symbols: values of some, bounds of others.
pub(super) struct Known<'a> {
    values: &'a SymbolValues,
    /// Symbols that stand for anything from the first number up to the second one.
    bounds: Vec<(Symbol, Range)>,
}

impl Range {
    fn exactly(value: i128) -> Self {
        Self { least: value, most: value }
    }

    /// Where the four corners of an operation on two ranges lie.
    fn spanning(self, other: Self, op: impl Fn(i128, i128) -> i128) -> Self {
        let corners = [
            op(self.least, other.least),
            op(self.least, other.most),
            op(self.most, other.least),
            op(self.most, other.most),
        ];
        let [first, ..] = corners;
        corners.into_iter().fold(Self::exactly(first), |range, corner| Self {
            least: range.least.min(corner),
            most: range.most.max(corner),
        })
    }

    fn each(self, other: Self, op: impl Fn(i128, i128) -> i128) -> Self {
        Self { least: op(self.least, other.least), most: op(self.most, other.most) }
    }

    const TRUTH: Self = Self { least: 0, most: 1 };
}

impl<'a> Known<'a> {
    pub fn new(values: &'a SymbolValues) -> Self {
        Self { values, bounds: Vec::new() }
    }

    /// The same knowledge, to add to.
    pub fn child(&self) -> Self {
        Self { values: self.values, bounds: self.bounds.clone() }
    }

    /// Whether anything is known of the symbol.
    pub fn has(&self, symbol: &Symbol) -> bool {
        self.range(symbol).is_some()
    }

    /// Adds that a symbol is exactly `value`.
    pub fn set(&mut self, symbol: &Symbol, value: u64) {
        self.bounds.push((symbol.clone(), Range::exactly(value.into())));
    }

    /// Adds that a symbol is at most `most`.
    pub fn bound(&mut self, symbol: &Symbol, most: u64) {
        self.bounds.push((symbol.clone(), Range { least: 0, most: most.into() }));
    }

    fn range(&self, symbol: &Symbol) -> Option<Range> {
        if let Some(value) = self.values.get(symbol) {
            return Some(Range::exactly(value.into()));
        }
        self.bounds.iter().find(|(known, _)| known == symbol).map(|(_, range)| *range)
    }

    /// The most that an expression can be, nothing being less than 0; `None` if it has symbols of which nothing is
    /// known.
    pub fn extent(&self, dim: &TDim) -> Option<u64> {
        let most = match dim {
            TDim::Val(value) => i128::from(*value),
            other => self.evaluate(other, 0)?.most,
        };
        Some(u64::try_from(most.max(0)).unwrap_or(u64::MAX))
    }

    /// The extents of all axes of a fact.
    pub fn dims(&self, fact: &TypedFact) -> Option<Dims> {
        fact.shape.iter().map(|dim| self.extent(dim)).collect()
    }

    /// The bytes of a tensor that a fact describes, packed forms included.
    pub fn bytes(&self, fact: &TypedFact) -> Option<u64> {
        let plain = bytes(&self.dims(fact)?, fact.datum_type.size_of());
        let Some(packed) = fact.exotic_fact() else { return Some(plain) };
        #[cfg(feature = "cuda")]
        if let Some(there) = packed.downcast_ref::<tract_gpu::fact::DeviceFact>() {
            // A tensor in a device's memory takes there what it would take here.
            return self.bytes(&there.fact);
        }
        // A packed tensor has a matrix for each of its elements.
        let each = packed.downcast_ref::<PackedExoticFact>().is_some()
            || packed.downcast_ref::<DynPackedExoticFact>().is_some();
        let count = if each { elements(&self.dims(fact)?) } else { 1 };
        packed
            .buffer_sizes()
            .iter()
            .try_fold(plain, |sum, size| Some(sum.saturating_add(self.extent(size)?.saturating_mul(count))))
    }

    fn evaluate(&self, dim: &TDim, depth: usize) -> Option<Range> {
        if depth > MAX_DEPTH {
            return None;
        }
        let of = |dim: &TDim| self.evaluate(dim, depth + 1);
        let fold = |terms: &[TDim], op: &dyn Fn(Range, Range) -> Range| {
            let mut terms = terms.iter().map(of);
            let first = terms.next().unwrap_or(Some(Range::exactly(0)))?;
            terms.try_fold(first, |range, term| Some(op(range, term?)))
        };
        Some(match dim {
            TDim::Val(value) => Range::exactly((*value).into()),
            TDim::Sym(symbol) => self.range(symbol)?,
            TDim::Add(terms) => fold(terms, &|a, b| a.each(b, i128::saturating_add))?,
            TDim::Mul(terms) => fold(terms, &|a, b| a.spanning(b, i128::saturating_mul))?,
            TDim::MulInt(factor, term) => {
                of(term)?.spanning(Range::exactly((*factor).into()), i128::saturating_mul)
            }
            TDim::Div(term, by) => {
                let by = i128::from(*by).max(1);
                let range = of(term)?;
                Range { least: range.least.div_euclid(by), most: range.most / by }
            }
            TDim::Broadcast(terms) | TDim::Max(terms) => fold(terms, &|a, b| a.each(b, i128::max))?,
            TDim::Min(terms) => fold(terms, &|a, b| a.each(b, i128::min))?,
            TDim::Ge(..) | TDim::Eq(..) => Range::TRUTH,
        })
    }
}

/// The product of the extents.
pub(super) fn elements(dims: &[u64]) -> u64 {
    // An empty axis empties the tensor, however large the others are.
    if dims.contains(&0) {
        return 0;
    }
    dims.iter().fold(1, |product, dim| product.saturating_mul(*dim))
}

pub(super) fn bytes(dims: &[u64], size_of: usize) -> u64 {
    elements(dims).saturating_mul(wide(size_of))
}

/// There is no machine where a `usize` does not fit.
pub(super) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The values of the symbols in the inputs' shapes, found as the engine finds them when it is given such inputs.
pub(super) fn bind<'a>(
    facts: impl Iterator<Item = &'a TypedFact>,
    shapes: impl Iterator<Item = &'a [usize]>,
) -> SymbolValues {
    let mut values = SymbolValues::default();
    for (fact, shape) in facts.zip(shapes) {
        for (dim, size) in fact.shape.iter().zip(shape) {
            let Ok(size) = i64::try_from(*size) else { continue };
            let rest = dim.eval(&values);
            #[allow(clippy::mutable_key_type)]
            let unknown = rest.symbols();
            let mut unknown = unknown.into_iter();
            if let (Some(symbol), None) = (unknown.next(), unknown.next())
                && let Some(value) = solve_for(&symbol, &rest, &TDim::Val(size))
                && let Some(value) = value.as_i64()
            {
                values.set(&symbol, value);
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_onnx::prelude::SymbolScope;

    #[test]
    fn what_overflows_is_too_large_and_what_shrinks_counts_at_its_largest() {
        let scope = SymbolScope::default();
        let parse = |text: &str| scope.parse_tdim(text).unwrap();
        let values = SymbolValues::default().with(&scope.sym("n"), 1 << 40);
        let mut known = Known::new(&values);
        known.bound(&scope.sym("count"), 1000);
        assert_eq!(known.extent(&parse("n*n")), Some(u64::MAX));
        assert_eq!(known.extent(&parse("3*n+1")), Some((3 << 40) + 1));
        assert_eq!(known.extent(&parse("1000000-100*count")), Some(1_000_000));
        assert_eq!(known.extent(&parse("count-5000")), Some(0));
        assert_eq!(known.extent(&parse("other")), None);
        assert_eq!(elements(&[u64::MAX, 2, 0]), 0);
        assert_eq!(bytes(&[u64::MAX, 2], 4), u64::MAX);
    }
}
