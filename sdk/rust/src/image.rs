//! Pictures as models want them (feature `image`): decoded, cut to size, and laid out as numbers.
//!
//! ```
//! use weir_sdk::image::{Layout, Normalisation, cover, decode, to_array};
//! use weir_sdk::{Error, Request};
//!
//! fn pixels(request: &Request) -> Result<weir_sdk::Array<f32>, Error> {
//!     let picture = cover(&decode(request.body()?, 20_000_000)?, 224, 224);
//!     to_array(&picture, Layout::Nchw, &Normalisation::IMAGENET) // [1, 3, 224, 224]
//! }
//! ```

use std::io::Cursor;

use ::image::error::{ImageError, LimitErrorKind};
use ::image::imageops::{self, FilterType};
use ::image::{ImageReader, Limits};
pub use ::image::{Rgb, RgbImage};

use crate::{Array, Error};

/// The order of a picture's dimensions in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One picture, channels, rows, columns: most ONNX models.
    Nchw,
    /// One picture, rows, columns, channels: most models that come from TensorFlow.
    Nhwc,
}

/// What a channel's value of 0 to 255 becomes: `(value / 255 - mean) / deviation`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalisation {
    /// For red, green, blue.
    pub mean: [f32; 3],
    /// For red, green, blue.
    pub deviation: [f32; 3],
}

impl Normalisation {
    /// 0 to 1.
    pub const UNIT: Self = Self { mean: [0.0; 3], deviation: [1.0; 3] };

    /// -1 to 1.
    pub const SIGNED: Self = Self { mean: [0.5; 3], deviation: [0.5; 3] };

    /// The mean and deviation of the pictures of ImageNet, which torchvision's models are trained with.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] };
}

/// Decodes a BMP, GIF (its first picture), JPEG, PNG or WebP. Transparency is dropped.
///
/// Errors: 415 `unsupported_image`, 400 `invalid_image`, and 413 `image_too_large` for more than `max_pixels`, which is looked at
/// before memory is taken.
pub fn decode(bytes: &[u8], max_pixels: u64) -> Result<RgbImage, Error> {
    let reader = || -> Result<_, Error> { Ok(ImageReader::new(Cursor::new(bytes)).with_guessed_format()?) };
    let (width, height) = reader()?.into_dimensions().map_err(error)?;
    if u64::from(width) * u64::from(height) > max_pixels {
        let detail = format!("the picture has {width} x {height} pixels, at most {max_pixels} are taken");
        return Err(Error::new(413, "image_too_large", detail));
    }
    let mut reader = reader()?;
    let mut limits = Limits::no_limits();
    // 16 bits for each of four channels, twice: what the decoders take on their way.
    limits.max_alloc = Some(max_pixels.saturating_mul(16).max(1024 * 1024));
    reader.limits(limits);
    Ok(reader.decode().map_err(error)?.into_rgb8())
}

fn error(error: ImageError) -> Error {
    match error {
        ImageError::Unsupported(_) => Error::new(415, "unsupported_image", error.to_string()),
        ImageError::Limits(limit) if limit.kind() == LimitErrorKind::InsufficientMemory => {
            Error::new(413, "image_too_large", "the picture takes too much memory to decode")
        }
        _ => Error::new(400, "invalid_image", format!("the picture cannot be decoded: {error}")),
    }
}

/// The picture at this size, stretched where its sides have another ratio.
pub fn resize(picture: &RgbImage, width: u32, height: u32) -> RgbImage {
    imageops::resize(picture, width, height, FilterType::Triangle)
}

/// The picture's middle at this size: scaled so that it covers it, and what juts out cut off.
pub fn cover(picture: &RgbImage, width: u32, height: u32) -> RgbImage {
    let (given_width, given_height) = (u64::from(picture.width().max(1)), u64::from(picture.height().max(1)));
    let (wide, high) = (u64::from(width), u64::from(height));
    // The part of the picture that has the ratio asked for.
    let (part_width, part_height) = if given_width * high > given_height * wide {
        ((given_height * wide / high.max(1)).max(1), given_height)
    } else {
        (given_width, (given_width * high / wide.max(1)).max(1))
    };
    let (left, top) = ((given_width - part_width) / 2, (given_height - part_height) / 2);
    let small = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    let part = imageops::crop_imm(picture, small(left), small(top), small(part_width), small(part_height))
        .to_image();
    resize(&part, width, height)
}

/// The pixels as f32: [1, 3, height, width] or [1, height, width, 3], red first.
pub fn to_array(picture: &RgbImage, layout: Layout, by: &Normalisation) -> Result<Array<f32>, Error> {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let value = |pixel: &Rgb<u8>, channel: usize| {
        let pick = |values: [f32; 3]| values.get(channel).copied().unwrap_or_default();
        let value = f32::from(pixel.0.get(channel).copied().unwrap_or_default()) / 255.0;
        (value - pick(by.mean)) / pick(by.deviation)
    };
    match layout {
        Layout::Nchw => {
            let channel = |channel| picture.pixels().map(move |pixel| value(pixel, channel));
            let elements = (0..3).flat_map(channel).collect();
            Array::new(&[1, 3, height, width], elements)
        }
        Layout::Nhwc => {
            let pixel = |pixel| (0..3).map(move |channel| value(pixel, channel));
            let elements = picture.pixels().flat_map(pixel).collect();
            Array::new(&[1, height, width, 3], elements)
        }
    }
}

#[cfg(test)]
mod tests {
    use ::image::ImageFormat;

    use super::*;

    fn png(picture: &RgbImage) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_picture_is_decoded_within_its_bound() {
        let picture = RgbImage::from_fn(3, 2, |x, y| Rgb([x as u8, y as u8, 7]));
        assert_eq!(decode(&png(&picture), 6).unwrap(), picture);
        assert_eq!(decode(&png(&picture), 5).unwrap_err().code(), "image_too_large");
        assert_eq!(decode(&png(&picture)[..40], 6).unwrap_err().code(), "invalid_image");
        assert_eq!(decode(b"no picture", 6).unwrap_err().code(), "unsupported_image");
    }

    #[test]
    fn what_juts_out_is_cut_off_on_both_sides() {
        let picture =
            RgbImage::from_fn(6, 2, |x, _| if (2..4).contains(&x) { Rgb([255; 3]) } else { Rgb([0; 3]) });
        assert_eq!(cover(&picture, 2, 2), RgbImage::from_pixel(2, 2, Rgb([255; 3])));
        assert_eq!(cover(&picture, 4, 4).dimensions(), (4, 4));
        assert_eq!(cover(&RgbImage::new(1, 1000), 8, 2).dimensions(), (8, 2));
    }

    #[test]
    fn pixels_are_laid_out_as_asked() {
        let picture =
            RgbImage::from_fn(2, 1, |x, _| if x == 0 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) });
        let planes = to_array(&picture, Layout::Nchw, &Normalisation::UNIT).unwrap();
        assert_eq!((planes.shape(), planes.elements()), (&[1, 3, 1, 2][..], &[1., 0., 0., 0., 0., 1.][..]));
        let pixels = to_array(&picture, Layout::Nhwc, &Normalisation::SIGNED).unwrap();
        assert_eq!(
            (pixels.shape(), pixels.elements()),
            (&[1, 1, 2, 3][..], &[1., -1., -1., -1., -1., 1.][..])
        );
    }
}
