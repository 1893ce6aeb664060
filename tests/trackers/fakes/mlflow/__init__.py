"""What tools/trackers/mlflow.py uses of the package mlflow, with its limits: calls are lines of the file $TRACKED."""

print("mlflow: what a package prints is no answer")
