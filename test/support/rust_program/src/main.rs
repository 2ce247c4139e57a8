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
    let mut model = Model::new()?;
    unsafe { model.run(&inputs, &mut outputs)? };
    for value in &y {
        println!("{}", value.to_bits());
    }
    Ok(())
}
