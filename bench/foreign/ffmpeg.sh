# a filter graph and an encoder: frames from pools of buffers
# needs: ffmpeg
# run: ffmpeg -v error -bitexact -f lavfi -i testsrc2=duration=6:size=640x360:rate=25 -vf hue=s=0.5,unsharp -c:v mpeg4 -threads 1 -f framemd5 -
:
