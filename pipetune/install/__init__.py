"""What is found or built in a folder of its own: Pillow-SIMD, jpeg-roi, FFmpeg."""
