# temper as it is installed: the README's commands, from a copy of this folder (`cp -r` it to where you may write).
help:
	@echo "make demo          a small model learns to add on 2 ranks, under 4 minutes"
	@echo "make demo-control  its GRPO with shuffled answers: nothing is learned"
	@echo "make learn         products in written steps: SFT, GRPO with three seeds, on an H100 or H200"
demo:
	@tools/demo.sh
demo-control:
	@tools/demo_control.sh
learn:
	@tools/learn_gpu.sh
.PHONY: help demo demo-control learn
