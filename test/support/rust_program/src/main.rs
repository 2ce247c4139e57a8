use mirlo_model::{DLDataType, DLTensor, Model};

fn tensor(data: &mut [f32], shape: &mut [i64]) -> DLTensor {
    DLTensor {
        data: data.as_mut_ptr().cast(),
        device_type: 1,
        device_id: 0,
        ndim: shape.len() as i32,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

fn main() -> Result<(), String> {
    let mut x: Vec<f32> = (0..3 * 40).map(|i| i as f32 / 100.0).collect();
    let (mut y, mut z) = (vec![0f32; 3 * 24], vec![0f32; 3 * 40]);
    let (mut x_shape, mut y_shape, mut z_shape) = ([3, 40], [3, 24], [3, 40]);
    let inputs = [tensor(&mut x, &mut x_shape)];
    let mut outputs = [tensor(&mut y, &mut y_shape), tensor(&mut z, &mut z_shape)];
    let folder = std::env::args().nth(1).ok_or("name the folder of the model")?;
    let mut model = match mirlo_model::WEIGHTS_FILE {
        None => Model::new()?,
        Some(name) => {
            assert!(Model::new().err().unwrap().contains("Model::with_weights"));
            assert!(Model::with_weights("none").err().unwrap().contains("cannot read the weights"));
            Model::with_weights(std::path::Path::new(&folder).join(name))?
        }
    };
    assert!(unsafe { model.run(&inputs, &mut outputs[..1]) }.unwrap_err().contains("2 outputs, found 1 and 1"));
    unsafe { model.run(&inputs, &mut outputs)? };
    for value in &y {
        println!("{}", value.to_bits());
    }
    Ok(())
}
